import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { assetsDirectory, REPOSITORY } from '../../setup/paths.mjs';
import { COMPILE_CACHE } from './compile-cache.mjs';
import { failure, withExitCode } from '../results/counts.mjs';
import { runLive } from './live-command.mjs';
import { summarizeRecord } from '../results/test-record.mjs';

const EVENT_REPORTER = join(REPOSITORY, 'scripts', 'test', 'results', 'event-reporter.mjs');
const SPEC_REPORTER = join(REPOSITORY, 'scripts', 'test', 'results', 'spec-reporter.mjs');
export const MINUTE_MS = 60_000;

/**
 * @typedef {import('../results/counts.mjs').Counts} Counts
 *
 * @typedef {object} NodeTests
 * @property {string} node
 * @property {string[]} [wrapper]  a command that runs Node.js
 * @property {readonly string[]} files
 * @property {string} [entry]  a program that loads the files in place of Node's runner
 * @property {string[]} [args]
 * @property {number} timeoutMs
 * @property {NodeJS.Dict<string>} [env]
 * @property {(line: string) => void} [onLine]  receives the output line by line; else it goes to our output
 */

/**
 * Runs `node --test`.
 * @param {NodeTests} options
 * @returns {Promise<import('./run-jobs.mjs').JobResult>}
 */
export async function runNodeTests(options) {
  const { files, timeoutMs } = options;
  if (files.length === 0) return { counts: failure('there are no test files') };
  const { exitCode, expired, record } = await recordNodeTests(options);
  const { counts, unfinished, times } = summarizeRecord(record, files);
  return {
    counts: expired ? stopped(counts, unfinished, timeoutMs) : withExitCode(counts, exitCode),
    times,
  };
}

/**
 * @param {NodeTests} options
 * @returns {Promise<import('./live-command.mjs').LiveResult & { record: string }>} with the text that
 *   `event-reporter.mjs` wrote
 */
async function recordNodeTests({ node, wrapper = [], files, entry, args = [], timeoutMs, env, onLine }) {
  const directory = await mkdtemp(join(tmpdir(), 'coppice-test-'));
  const recordPath = join(directory, 'record');
  const reporters = [
    `--test-reporter=${SPEC_REPORTER}`,
    '--test-reporter-destination=stdout',
    `--test-reporter=${EVENT_REPORTER}`,
    `--test-reporter-destination=${recordPath}`,
  ];
  const loaded = entry === undefined ? files : [entry];
  const [command = node, ...words] = [...wrapper, node, '--test', ...args, ...reporters, ...loaded];
  try {
    const ended = await runLive(command, words, {
      timeoutMs,
      env: { COPPICE_ASSETS_DIR: assetsDirectory(), ...COMPILE_CACHE, ...env },
      ...(onLine === undefined ? {} : { onLine }),
    });
    return { ...ended, record: existsSync(recordPath) ? await readFile(recordPath, 'utf8') : '' };
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/**
 * @param {Counts} counts
 * @param {readonly string[]} unfinished
 * @param {number} timeoutMs
 * @returns {Counts} with one more failure, which lists the unfinished tests
 */
export function stopped(counts, unfinished, timeoutMs) {
  const lines = unfinished.map((line) => `not finished: ${line}`);
  const failures = [`stopped after ${timeoutMs / MINUTE_MS} minutes`, ...lines];
  for (const line of failures) process.stdout.write(`${line}\n`);
  return { ...counts, failed: counts.failed + 1, failures: [...counts.failures, ...failures] };
}
