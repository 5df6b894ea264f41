import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';

const MAIN = fileURLToPath(new URL('src/main.ts', import.meta.url));

/**
 * Makes one file of the user's commands and all that they load.
 * @param {string} file
 */
export async function buildUserProgram(file) {
  const bundle = await rolldown({
    input: MAIN,
    platform: 'node',
    logLevel: 'warn',
    // Native parts that `ws` uses if they are installed, and does not need.
    external: ['bufferutil', 'utf-8-validate'],
    transform: { target: 'node20' },
  });
  try {
    await bundle.write({ file, format: 'esm', codeSplitting: false });
  } finally {
    await bundle.close();
  }
}
