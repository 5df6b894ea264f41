import { rolldown } from 'rolldown';

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
    await bundle.write({ dir: directory, format: 'esm', ...names });
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
