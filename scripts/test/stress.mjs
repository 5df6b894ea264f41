/**
 * `npm test -- --stress FILE [--rounds N]`: one test file again and again while all processors are busy with something
 * else, as they are on a machine that is too small. What passes alone and fails here waits too briefly for something.
 */
import { spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { relative, resolve } from 'node:path';
import { REPOSITORY } from '../setup/paths.mjs';
import { SetupError } from '../setup/setup-error.mjs';
import { addCounts, NOTHING } from './counts.mjs';
import { MINUTE_MS, runNodeTests } from './node-tests.mjs';
import { findNetworkWrapper } from './private-network.mjs';

const ROUND_TIMEOUT_MS = 30 * MINUTE_MS;
const TEST_TIMEOUT_MS = 10 * MINUTE_MS;
/** As many again as there are processors: each of the tests' processes gets half of one. */
const LOAD_PER_PROCESSOR = 1;

/**
 * @param {string} given
 * @returns {string} absolute
 */
export function findStressedFile(given) {
  const file = resolve(REPOSITORY, given);
  const path = relative(REPOSITORY, file);
  if (!/^(?:e2e|packages|scripts)\/.*\.test\.m?[jt]s$/u.test(path))
    throw new SetupError(`--stress ${given}: that is no test file`, {
      remedy: 'name one of e2e, packages or scripts, such as e2e/exec.test.ts',
    });
  return file;
}

/**
 * @param {object} options
 * @param {string} options.file
 * @param {number} options.rounds
 * @param {import('../setup/setup.mjs').SetupResult} options.tools
 * @returns {Promise<import('./counts.mjs').Counts>}
 */
export async function stress({ file, rounds, tools }) {
  const isEndToEnd = relative(REPOSITORY, file).startsWith('e2e/');
  const load = startLoad(tools.node);
  let total = NOTHING;
  try {
    for (let round = 1; round <= rounds; round += 1) {
      const startedAt = performance.now();
      const counts = await runNodeTests({
        node: tools.node,
        files: [file],
        ...(isEndToEnd ? {} : { wrapper: await findNetworkWrapper() }),
        args: ['--test-isolation=none', `--test-timeout=${TEST_TIMEOUT_MS}`],
        timeoutMs: ROUND_TIMEOUT_MS,
        env: {
          COPPICE_TEST_LANE: '0',
          COPPICE_TEST_POSTGRES_BIN: isEndToEnd ? tools.packagedPostgres : undefined,
          COPPICE_TEST_API_PYTHON: tools.apiTests,
        },
      });
      total = addCounts(total, counts);
      const seconds = Math.round((performance.now() - startedAt) / 1000);
      process.stdout.write(`round ${round} of ${rounds}: ${counts.failed} failed, ${seconds} s\n`);
    }
  } finally {
    for (const child of load) child.kill('SIGKILL');
  }
  return total;
}

/** @param {string} node */
function startLoad(node) {
  const count = LOAD_PER_PROCESSOR * availableParallelism();
  return Array.from({ length: count }, () => spawn(node, ['-e', 'for (;;);'], { stdio: 'ignore' }));
}
