import { relative } from 'node:path';
import { REPOSITORY } from '../setup/paths.mjs';
import { compileService } from './compile-cache.mjs';
import { failure } from './counts.mjs';
import { countLanes, planLanes, runInLanes } from './e2e-lanes.mjs';
import { describeFileTimes, readRecordedTimes, recordTimes } from './file-times.mjs';
import { countTests, MINUTE_MS, recordNodeTests } from './node-tests.mjs';
import { summarizeRecord } from './test-record.mjs';

const TIMEOUT_MS = 70 * MINUTE_MS;
const TEST_TIMEOUT_MS = 10 * MINUTE_MS;

/**
 * @typedef {object} EndToEnd
 * @property {string} node
 * @property {string[]} files
 * @property {NodeJS.Dict<string>} env
 * @property {boolean} isRecorded  whether how long each took is kept for the order of later runs
 */

/**
 * Tests on real virtual machines. Lanes tell what is theirs apart by
 * `COPPICE_TEST_LANE` and share what is in `COPPICE_TEST_RUN`; what they print appears job by job.
 * @param {EndToEnd} options
 * @returns {Promise<import('./counts.mjs').Counts>}
 */
export async function runEndToEnd({ node, files, env, isRecorded }) {
  if (files.length === 0) return failure('there is not a single test file');
  await compileService(node);
  const endsAt = performance.now() + TIMEOUT_MS;
  const whole = { exitCode: 0, expired: false, record: '' };

  /** @type {(job: string[], lane: number, onLine?: (line: string) => void) => Promise<void>} */
  const runJob = async (job, lane, onLine) => {
    const timeoutMs = endsAt - performance.now();
    if (job.length === 0) return;
    if (timeoutMs <= 0) {
      whole.expired = true;
      return;
    }
    const ended = await recordNodeTests({
      node,
      files: job,
      // In one process, one after the other: they share one service, so that images and templates are made once.
      args: ['--test-isolation=none', `--test-timeout=${TEST_TIMEOUT_MS}`],
      timeoutMs,
      env: { ...env, COPPICE_TEST_LANE: String(lane) },
      ...(onLine === undefined ? {} : { onLine }),
    });
    whole.exitCode = Math.max(whole.exitCode, ended.exitCode);
    whole.expired ||= ended.expired;
    whole.record += ended.record;
  };

  const { together, alone } = await planLanes(files, readRecordedTimes());
  await runInLanes(together, countLanes(), async (job, lane) => {
    /** @type {string[]} */
    const lines = [];
    await runJob(job, lane, (line) => lines.push(line));
    process.stdout.write(`\n--- ${describeJob(job)}\n${lines.join('\n')}\n`);
  });
  process.stdout.write(`\n--- alone: ${describeJob(alone)}\n`);
  await runJob(alone, 0);

  const summary = summarizeRecord(whole.record, files);
  process.stdout.write(describeFileTimes(summary.times));
  if (isRecorded) recordTimes(summary.times);
  return countTests(whole, summary, TIMEOUT_MS);
}

/** @param {readonly string[]} job */
function describeJob(job) {
  return job.map((file) => relative(REPOSITORY, file)).join(' ');
}
