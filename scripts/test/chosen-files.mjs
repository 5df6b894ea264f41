/** Test files that a developer names, alone: `npm test -- FILE…`. */
import { relative, resolve } from 'node:path';
import { REPOSITORY } from '../setup/paths.mjs';
import { SetupError } from '../setup/setup-error.mjs';
import { addCounts, NOTHING } from './counts.mjs';
import { MINUTE_MS, runNodeTests } from './node-tests.mjs';
import { findNetworkWrapper } from './private-network.mjs';

const TIMEOUT_MS = 30 * MINUTE_MS;
const TEST_TIMEOUT_MS = 10 * MINUTE_MS;

/**
 * @param {string} given
 * @returns {string} absolute
 */
export function findTestFile(given) {
  const file = resolve(REPOSITORY, given);
  if (!/^(?:e2e|lab|packages|scripts)\/.*\.test\.m?[jt]s$/u.test(relative(REPOSITORY, file)))
    throw new SetupError(`${given}: that is no test file`, {
      remedy: 'name one of e2e, lab, packages or scripts, such as e2e/exec.test.ts',
    });
  return file;
}

/**
 * In one process for those on real virtual machines, and one for all others.
 * @param {readonly string[]} files absolute
 * @param {import('../setup/setup.mjs').SetupResult} tools
 * @returns {Promise<import('./counts.mjs').Counts>}
 */
export async function runChosen(files, tools) {
  const isEndToEnd = (/** @type {string} */ file) => relative(REPOSITORY, file).startsWith('e2e/');
  const common = {
    node: tools.node,
    args: ['--test-isolation=none', `--test-timeout=${TEST_TIMEOUT_MS}`],
    timeoutMs: TIMEOUT_MS,
  };
  let counts = NOTHING;
  const beside = files.filter((file) => !isEndToEnd(file));
  if (beside.length > 0) {
    const env = { COPPICE_TEST_API_PYTHON: tools.apiTests };
    const wrapper = await findNetworkWrapper();
    const result = await runNodeTests({ ...common, files: beside, wrapper, env });
    counts = addCounts(counts, result.counts);
  }
  const onMachines = files.filter(isEndToEnd);
  if (onMachines.length > 0) {
    const env = { COPPICE_TEST_LANE: '0', COPPICE_TEST_POSTGRES_BIN: tools.packagedPostgres };
    const result = await runNodeTests({ ...common, files: onMachines, env });
    counts = addCounts(counts, result.counts);
  }
  return counts;
}
