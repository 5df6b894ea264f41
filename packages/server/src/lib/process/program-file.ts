import { fileURLToPath } from 'node:url';

/** Path of this program, for starting it in another role: `main.ts`, or `main.mjs` in a build of the service. */
export const PROGRAM_FILE = fileURLToPath(
  new URL(import.meta.url.endsWith('.ts') ? '../../main.ts' : 'main.mjs', import.meta.url),
);
