import { dirname, join } from 'node:path';
import { REPOSITORY } from '../setup/paths.mjs';
import { run } from '../setup/run-command.mjs';

/** Node compiles each module once for all processes of all runs: there are thousands, and it is most of their start. */
export const COMPILE_CACHE = { NODE_COMPILE_CACHE: join(REPOSITORY, '.cache', 'compiled') };

const TIMEOUT_MS = 60_000;
const SOURCE_ROLES = ['supervisor.ts', 'control-role.ts', 'runner-role.ts', 'egress/egress.ts'];
const ROLES = ['supervisor.mjs', 'control-role.mjs', 'runner-role.mjs', 'egress.mjs'];

/**
 * Compiles the roles of the service, which are killed or under another account when they would write a cache, and their
 * sources, for tests that start a part of them.
 * @param {{ node: string, service: string }} tools
 */
export async function compileService({ node, service }) {
  const roles = ROLES.map((role) => join(dirname(service), role));
  for (const program of [buildCompiler(roles), buildSourceCompiler(REPOSITORY)]) {
    await run(node, ['--input-type=module', '--eval', program], {
      step: 'compiling the service',
      timeoutMs: TIMEOUT_MS,
      env: COMPILE_CACHE,
    });
  }
}

/**
 * A program that loads the sources of the service, so that Node keeps them compiled.
 * @param {string} checkout
 */
export function buildSourceCompiler(checkout) {
  return buildCompiler(SOURCE_ROLES.map((role) => join(checkout, 'packages', 'server', 'src', role)));
}

/** @param {string[]} paths */
function buildCompiler(paths) {
  const urls = paths.map((path) => `file://${path}`);
  return `for (const url of ${JSON.stringify(urls)}) await import(url); process.exit(0);`;
}
