import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Path of this program, for starting it in another role: `main.ts`, or `main.mjs` in a build of the service. */
export const PROGRAM_FILE = fileURLToPath(
  new URL(import.meta.url.endsWith('.ts') ? '../../main.ts' : 'main.mjs', import.meta.url),
);

/** Path of the script that unpacks layers; only a build of the service has it. */
export const UNPACK_SCRIPT = join(dirname(PROGRAM_FILE), 'unpack.mjs');
