/** `npm pack` runs it: builds the published program, with the licences of the libraries that it contains. */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { buildUserProgram } from './build-user-program.mjs';

const LIBRARIES = ['commander', 'ws'];

await buildUserProgram(fileURLToPath(new URL('dist/coppice.mjs', import.meta.url)));
const licences = LIBRARIES.map((name) => {
  const text = readFileSync(new URL(`../../node_modules/${name}/LICENSE`, import.meta.url), 'utf8');
  return `${name}\n\n${text.trim()}\n`;
});
writeFileSync(new URL('dist/LICENSES.txt', import.meta.url), licences.join('\n\n'));
