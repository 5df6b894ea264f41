import { rolldown } from 'rolldown';

/**
 * The client of S3 is one file: it loads parts of itself when it first looks for credentials, and by then control can no
 * longer read a checkout in root's home.
 */
const S3_CLIENT = { name: 's3-client', test: /\/node_modules\/(?:@aws-sdk|@aws|@smithy|bowser)\// };

/**
 * Makes a few files of a program and all that it loads: one for itself, one for each module that it loads later, and those
 * for what these share.
 * @param {string} input  its main module
 * @param {string} directory  where the files are written, which are named after their modules, with `.mjs`
 */
export async function buildProgram(input, directory) {
  const bundle = await rolldown({ input, platform: 'node', logLevel: 'warn' });
  try {
    const names = { entryFileNames: '[name].mjs', chunkFileNames: '[name].mjs' };
    await bundle.write({ dir: directory, format: 'esm', ...names, codeSplitting: { groups: [S3_CLIENT] } });
  } finally {
    await bundle.close();
  }
}

/**
 * Makes one file of a script and all that it loads, for a process that can reach no other file.
 * @param {string} input  its main module
 * @param {string} file
 */
export async function buildScript(input, file) {
  const bundle = await rolldown({ input, platform: 'node', logLevel: 'warn' });
  try {
    await bundle.write({ file, format: 'esm', codeSplitting: false });
  } finally {
    await bundle.close();
  }
}
