/** Divides the test files of Node.js into jobs: some files share a process, others must run alone. */
import { readFile } from 'node:fs/promises';
import { basename, join, relative } from 'node:path';
import { REPOSITORY } from '../../setup/paths.mjs';
import { MINUTE_MS, runNodeTests } from './node-tests.mjs';

/** @typedef {import('./run-jobs.mjs').Job} Job */

/** Assumed for a file that no run has measured. */
const UNKNOWN_SECONDS = 60;
/** Unit test files share a process until they take this long together. */
const BATCH_SECONDS = 60;
const BATCH = join(REPOSITORY, 'scripts', 'test', 'jobs', 'batch.mjs');
/** The files that share a service are divided into processes that take no longer than this. */
const SHARED_SECONDS = 900;
/** Twice what the longest takes: one that a failed test keeps alive must not use up the time of all. */
const TIMEOUT_MS = 30 * MINUTE_MS;
const TEST_TIMEOUT_MS = 10 * MINUTE_MS;

/** Files that do not run in a lane. Files that share a service are one job and must have the same place. */
export const PLACES = new Map(
  /** @type {[string, import('./run-jobs.mjs').Place][]} */ ([
    ['capacity.test.ts', 'heavy'],
    ['doctor.test.ts', 'single'],
    ['greedy-guests.test.ts', 'alone'],
    ['guest-timer.test.ts', 'single'],
    // Chromium aborts connections in progress when a TAP is added or removed (ERR_NETWORK_CHANGED).
    ['preview.test.ts', 'single'],
    ['stream-load.test.ts', 'alone'],
  ]),
);

/** Imports of fixtures that keep one service, with its images and templates, for all files that use them. */
const SHARING = [
  {
    pattern: /fixtures\/(?:service\/shared|api\/client|clones\/clone-check|images\/image-kind)\.ts'/u,
    isCut: true,
  },
  // The internet of these has addresses that two lanes cannot have at once.
  { pattern: /fixtures\/egress\/egress-shared\.ts'/u, isCut: false },
];

/** Tests that do random work for a given time, and of which no answer is urgent. */
const SPARE = /\/simulation\.test\.ts$/u;
const LOW_PRIORITY = ['nice', '-n', '10'];

/**
 * @typedef {object} FilesOptions
 * @property {string} suite
 * @property {string} node
 * @property {readonly string[]} files
 * @property {ReadonlyMap<string, number>} times  seconds of an earlier run, by path in the repository
 * @property {NodeJS.Dict<string>} env
 */

/**
 * Plans the unit tests, several files in each process, because loading modules takes most of a process's time.
 * @param {FilesOptions & { wrapper: string[] }} options
 * @returns {Job[]}
 */
export function planBatches(options) {
  const { suite, node, wrapper, files: all, times, env } = options;
  const batches = /** @type {const} */ (['beside', 'spare']).flatMap((place) => {
    const files = all.filter((file) => SPARE.test(file) === (place === 'spare'));
    return divide({ files, times }).map((batch) => ({ place, batch }));
  });
  return batches.map(({ place, batch: { files, seconds } }, index, { length }) => ({
    suite,
    title: `${suite} ${index + 1} of ${length}`,
    place,
    seconds,
    run: ({ print }) =>
      runNodeTests({
        node,
        wrapper: [...(place === 'spare' ? LOW_PRIORITY : []), ...wrapper],
        files,
        entry: BATCH,
        args: ['--test-isolation=none', `--test-timeout=${TEST_TIMEOUT_MS}`],
        timeoutMs: TIMEOUT_MS,
        env: { ...env, COPPICE_TEST_FILES: JSON.stringify(files) },
        onLine: print,
      }),
  }));
}

/**
 * Divides files into batches of about the same duration. A file that takes as long as a batch is a batch of its own.
 * @param {Pick<FilesOptions, 'files' | 'times'>} options
 * @returns {{ files: string[], seconds: number }[]}
 */
export function divide({ files, times }) {
  const secondsOf = secondsFrom(times, 1);
  const longestFirst = files.toSorted((a, b) => secondsOf(b) - secondsOf(a));
  const total = longestFirst.reduce((sum, file) => sum + secondsOf(file), 0);
  const batches = Array.from({ length: Math.ceil(total / BATCH_SECONDS) }, () => ({
    files: /** @type {string[]} */ ([]),
    seconds: 0,
  }));
  for (const file of longestFirst) {
    const shortest = batches.reduce((best, batch) => (batch.seconds < best.seconds ? batch : best));
    shortest.files.push(file);
    shortest.seconds += secondsOf(file);
  }
  return batches.filter((batch) => batch.files.length > 0);
}

/**
 * Plans the tests on VMs. Files that share a service are few jobs, each in one process, so that images and templates
 * are made once in each. Each lane uses its own `COPPICE_TEST_LANE` for what must differ; all share the directory `COPPICE_TEST_RUN`.
 * @param {FilesOptions} options
 * @returns {Promise<Job[]>}
 */
export async function planMachineJobs({ suite, node, files, times, env }) {
  const secondsOf = secondsFrom(times, UNKNOWN_SECONDS);
  const groups = await groupByService(files);
  const jobs = groups.flatMap(({ files, isCut }) => (isCut ? cut(files, secondsOf) : [files]));
  return jobs.map((group) => ({
    suite,
    title: group.map((file) => relative(REPOSITORY, file)).join(' '),
    place: placeOf(group[0] ?? ''),
    seconds: group.reduce((sum, file) => sum + secondsOf(file), 0),
    run: ({ lane, print }) =>
      runNodeTests({
        node,
        files: group,
        args: ['--test-isolation=none', `--test-timeout=${TEST_TIMEOUT_MS}`],
        timeoutMs: TIMEOUT_MS,
        env: { ...env, COPPICE_TEST_LANE: String(lane) },
        onLine: print,
      }),
  }));
}

/**
 * Cuts a list of files into parts of about the same duration, in the same order.
 * @param {readonly string[]} files
 * @param {(file: string) => number} secondsOf
 * @returns {string[][]}
 */
export function cut(files, secondsOf) {
  const total = files.reduce((sum, file) => sum + secondsOf(file), 0);
  const seconds = total / Math.ceil(total / SHARED_SECONDS);
  /** @type {string[][]} */
  const parts = [];
  let before = 0;
  for (const file of files) {
    // A file belongs to the part in which its middle is.
    const index = Math.floor((before + secondsOf(file) / 2) / seconds);
    before += secondsOf(file);
    (parts[index] ??= []).push(file);
  }
  return parts.filter((part) => part !== undefined);
}

/** @param {string} file */
function placeOf(file) {
  return PLACES.get(basename(file)) ?? 'lane';
}

/**
 * @param {readonly string[]} files
 * @returns {Promise<{ files: string[], isCut: boolean }[]>}
 */
async function groupByService(files) {
  /** @type {Map<string, { files: string[], isCut: boolean }>} */
  const groups = new Map();
  for (const file of files) {
    const text = await readFile(file, 'utf8');
    const sharing = SHARING.find(({ pattern }) => pattern.test(text));
    const key = sharing === undefined ? file : `${sharing.pattern.source} ${placeOf(file)}`;
    const group = groups.get(key) ?? { files: [], isCut: sharing?.isCut ?? false };
    group.files.push(file);
    groups.set(key, group);
  }
  return [...groups.values()];
}

/**
 * @param {ReadonlyMap<string, number>} times
 * @param {number} unknown
 */
function secondsFrom(times, unknown) {
  return (/** @type {string} */ file) => times.get(relative(REPOSITORY, file)) ?? unknown;
}
