/** `npm test -- FILE…`: runs only the test files that a developer names. */
import { existsSync } from 'node:fs';
import { relative, resolve } from 'node:path';
import { REPOSITORY } from '../setup/paths.mjs';
import { SetupError } from '../setup/setup-error.mjs';
import { addCounts, NOTHING } from './results/counts.mjs';
import { planBatches, planMachineJobs } from './jobs/node-jobs.mjs';
import { findNetworkWrapper } from './jobs/private-network.mjs';
import { toolsEnvironment, unitEnvironment } from './jobs/tools-environment.mjs';

/**
 * Returns the absolute path of a test file. Throws SetupError for any other file and for a file that does not exist.
 * @param {string} given
 * @returns {string} absolute
 */
export function findTestFile(given) {
  const file = resolve(REPOSITORY, given);
  if (!/^(?:e2e|lab|packages|scripts)\/.*\.test\.m?[jt]s$/u.test(relative(REPOSITORY, file)))
    throw new SetupError(`${given}: that is no test file`, {
      remedy: 'name a test file in e2e, lab, packages or scripts, such as e2e/streams/exec.test.ts',
    });
  if (!existsSync(file))
    throw new SetupError(`${given}: there is no such file`, {
      remedy: 'name a file by its path from the root of the repository',
    });
  return file;
}

/**
 * Runs the files one after the other. Files that share a process in a full run share one here, too.
 * @param {readonly string[]} files absolute
 * @param {import('../setup/setup.mjs').SetupResult} tools
 * @returns {Promise<import('./results/counts.mjs').Counts>}
 */
export async function runChosen(files, tools) {
  const isEndToEnd = (/** @type {string} */ file) => relative(REPOSITORY, file).startsWith('e2e/');
  const common = { suite: '', node: tools.node, times: new Map() };
  const jobs = [
    ...planBatches({
      ...common,
      files: files.filter((file) => !isEndToEnd(file)),
      wrapper: await findNetworkWrapper(),
      env: unitEnvironment(tools),
    }),
    ...(await planMachineJobs({
      ...common,
      files: files.filter(isEndToEnd),
      env: toolsEnvironment(tools),
    })),
  ];
  const print = (/** @type {string} */ line) => void process.stdout.write(`${line}\n`);
  let counts = NOTHING;
  for (const job of jobs) counts = addCounts(counts, (await job.run({ lane: 0, print })).counts);
  return counts;
}
