import { fileURLToPath } from 'node:url';

/** This program, to be started in another role: `main.ts`, or what a build of the service has in its place. */
export const PROGRAM_FILE = fileURLToPath(
  new URL(import.meta.url.endsWith('.ts') ? '../main.ts' : 'main.mjs', import.meta.url),
);
