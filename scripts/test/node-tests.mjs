import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { assetsDirectory, REPOSITORY } from '../setup/paths.mjs';
import { COMPILE_CACHE } from './compile-cache.mjs';
import { failure, withExitCode } from './counts.mjs';
import { describeFileTimes, recordTimes } from './file-times.mjs';
import { runLive } from './live-command.mjs';
import { summarizeRecord } from './test-record.mjs';

const EVENT_REPORTER = join(REPOSITORY, 'scripts', 'test', 'event-reporter.mjs');
const SPEC_REPORTER = join(REPOSITORY, 'scripts', 'test', 'spec-reporter.mjs');
const ORDERED_TESTS = join(REPOSITORY, 'scripts', 'test', 'ordered-tests.mjs');
export const MINUTE_MS = 60_000;

/**
 * @typedef {import('./counts.mjs').Counts} Counts
 *
 * @typedef {object} NodeTests
 * @property {string} node
 * @property {string[]} [wrapper]  a command to run it by
 * @property {string[]} files
 * @property {string[]} [args]
 * @property {{ concurrency: number, timeoutMs: number }} [ordered]  the files are started in the order given, so many at
 *   once, and each of their tests may take so long
 * @property {number} timeoutMs
 * @property {boolean} [isRecorded]  how long each file took is kept for the order of later runs
 * @property {NodeJS.Dict<string>} [env]
 * @property {(line: string) => void} [onLine]  the output goes there instead of to ours
 *
 * @typedef {object} RecordedTests
 * @property {number} exitCode
 * @property {boolean} expired  whether they were stopped by us
 * @property {string} record  what `event-reporter.mjs` wrote
 */

/**
 * @param {NodeTests} options
 * @returns {Promise<Counts>}
 */
export async function runNodeTests(options) {
  if (options.files.length === 0) return failure('there is not a single test file');
  const ended = await recordNodeTests(options);
  const summary = summarizeRecord(ended.record, options.files);
  if (options.isRecorded === true) recordTimes(summary.times);
  process.stdout.write(describeFileTimes(summary.times));
  return countTests(ended, summary, options.timeoutMs);
}

/**
 * @param {NodeTests} options
 * @returns {Promise<RecordedTests>}
 */
export async function recordNodeTests(options) {
  const directory = await mkdtemp(join(tmpdir(), 'coppice-test-'));
  const recordPath = join(directory, 'record');
  const reporters = [
    `--test-reporter=${SPEC_REPORTER}`,
    '--test-reporter-destination=stdout',
    `--test-reporter=${EVENT_REPORTER}`,
    `--test-reporter-destination=${recordPath}`,
  ];
  const args =
    options.ordered === undefined
      ? ['--test', ...(options.args ?? []), ...reporters, ...options.files]
      : [ORDERED_TESTS, JSON.stringify({ files: options.files, ...options.ordered, recordPath })];
  const [command = options.node, ...words] = [...(options.wrapper ?? []), options.node, ...args];
  try {
    const ended = await runLive(command, words, {
      timeoutMs: options.timeoutMs,
      env: { COPPICE_ASSETS_DIR: assetsDirectory(), ...COMPILE_CACHE, ...options.env },
      ...(options.onLine === undefined ? {} : { onLine: options.onLine }),
    });
    return { ...ended, record: existsSync(recordPath) ? await readFile(recordPath, 'utf8') : '' };
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/**
 * @param {Pick<RecordedTests, 'exitCode' | 'expired'>} ended
 * @param {Pick<ReturnType<typeof summarizeRecord>, 'counts' | 'unfinished'>} summary
 * @param {number} timeoutMs
 * @returns {Counts}
 */
export function countTests({ exitCode, expired }, { counts, unfinished }, timeoutMs) {
  return expired ? stopped(counts, unfinished, timeoutMs) : withExitCode(counts, exitCode);
}

/**
 * @param {Counts} counts
 * @param {readonly string[]} unfinished
 * @param {number} timeoutMs
 * @returns {Counts} one failure more, that says what had not ended
 */
export function stopped(counts, unfinished, timeoutMs) {
  const lines = unfinished.map((line) => `not finished: ${line}`);
  const failures = [`stopped after ${timeoutMs / MINUTE_MS} minutes`, ...lines];
  for (const line of failures) process.stdout.write(`${line}\n`);
  return { ...counts, failed: counts.failed + 1, failures: [...counts.failures, ...failures] };
}
