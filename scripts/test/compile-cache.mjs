import { join } from 'node:path';
import { REPOSITORY } from '../setup/paths.mjs';
import { run } from '../setup/run-command.mjs';

/** Node compiles each module once for all processes of all runs: there are thousands, and it is most of their start. */
export const COMPILE_CACHE = { NODE_COMPILE_CACHE: join(REPOSITORY, '.cache', 'compiled') };

const TIMEOUT_MS = 60_000;
const ROLES = ['supervisor.ts', 'control-role.ts', 'runner-role.ts', 'egress/egress.ts'];

/**
 * Compiles the roles of the service. They could not do it themselves: a cache is written at the end of a process, by
 * then under another account or killed.
 * @param {string} node
 */
export async function compileService(node) {
  await run(node, ['--input-type=module', '--eval', buildCompiler(REPOSITORY)], {
    step: 'compiling the service',
    timeoutMs: TIMEOUT_MS,
    env: COMPILE_CACHE,
  });
}

/**
 * A program that loads the modules of the service, so that Node keeps them compiled.
 * @param {string} checkout
 */
export function buildCompiler(checkout) {
  const urls = ROLES.map((role) => `file://${checkout}/packages/server/src/${role}`);
  return `for (const url of ${JSON.stringify(urls)}) await import(url); process.exit(0);`;
}
