/**
 * `npm test -- --stress FILE [--rounds N]`: one test file again and again while all processors are busy with something
 * else, as they are on a machine that is too small. What passes alone and fails here waits too briefly for something.
 */
import { spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { runChosen } from './chosen-files.mjs';
import { addCounts, NOTHING } from './counts.mjs';

/** As many again as there are processors: each of the tests' processes gets half of one. */
const LOAD_PER_PROCESSOR = 1;

/**
 * @param {object} options
 * @param {string} options.file
 * @param {number} options.rounds
 * @param {import('../setup/setup.mjs').SetupResult} options.tools
 * @returns {Promise<import('./counts.mjs').Counts>}
 */
export async function stress({ file, rounds, tools }) {
  const load = startLoad(tools.node);
  const endLoad = () => load.forEach((child) => child.kill('SIGKILL'));
  // A run that a signal ends does not come to the end of this.
  process.once('exit', endLoad);
  let total = NOTHING;
  try {
    for (let round = 1; round <= rounds; round += 1) {
      const startedAt = performance.now();
      const counts = await runChosen([file], tools);
      total = addCounts(total, counts);
      const seconds = Math.round((performance.now() - startedAt) / 1000);
      process.stdout.write(`round ${round} of ${rounds}: ${counts.failed} failed, ${seconds} s\n`);
    }
  } finally {
    process.off('exit', endLoad);
    endLoad();
  }
  return total;
}

/** @param {string} node */
function startLoad(node) {
  const count = LOAD_PER_PROCESSOR * availableParallelism();
  return Array.from({ length: count }, () => spawn(node, ['-e', 'for (;;);'], { stdio: 'ignore' }));
}
