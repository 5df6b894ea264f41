/**
 * `npm test -- --stress FILE [--rounds N]`: runs one test file repeatedly while other processes keep all processors
 * busy, as on a machine that is too small. A test that passes alone and fails here has a timeout that is too short.
 */
import { spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { runChosen } from './chosen-files.mjs';
import { addCounts, NOTHING } from './results/counts.mjs';

/** Busy processes for each processor: a test process gets half of a processor. */
const LOAD_PER_PROCESSOR = 1;

/**
 * @param {object} options
 * @param {string} options.file
 * @param {number} options.rounds
 * @param {import('../setup/setup.mjs').SetupResult} options.tools
 * @returns {Promise<import('./results/counts.mjs').Counts>}
 */
export async function stress({ file, rounds, tools }) {
  const load = startLoad(tools.node);
  const endLoad = () => load.forEach((child) => child.kill('SIGKILL'));
  // After a signal, the `finally` below does not run.
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
