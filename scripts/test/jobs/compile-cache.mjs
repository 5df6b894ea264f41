import { dirname, join } from 'node:path';
import { REPOSITORY } from '../../setup/paths.mjs';
import { run } from '../../setup/run-command.mjs';

/**
 * Lets Node compile each module once for all processes of all runs: there are thousands of processes, and compiling
 * takes most of their start-up time.
 */
export const COMPILE_CACHE = { NODE_COMPILE_CACHE: join(REPOSITORY, '.cache', 'compiled') };

const TIMEOUT_MS = 60_000;
const SOURCE_ROLES = ['supervisor.ts', 'control-role.ts', 'runner-role.ts', 'egress/egress.ts'];
const ROLES = ['supervisor.mjs', 'control-role.mjs', 'runner-role.mjs', 'egress.mjs'];

/**
 * Fills the compile cache with the roles of the service, and with their sources for tests that start a part of a role.
 * The roles do not fill it: Node writes it at exit, but then they are killed or run under another account.
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
 * Builds a program that loads the sources of the service, so that Node caches them compiled.
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
