/** `npm pack` runs it: builds the published program, one file of JavaScript for Node.js 20 with the client in it. */
import { fileURLToPath } from 'node:url';
import { buildUserProgram } from './build-user-program.mjs';

await buildUserProgram(fileURLToPath(new URL('dist/coppice.mjs', import.meta.url)));
