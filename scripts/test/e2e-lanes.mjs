/**
 * Which files of `e2e/` run at once. One virtual machine leaves most of a second processor idle, so two lanes take one
 * job after the other; what measures time, loads the host or changes it for all runs alone after them.
 */
import { readFile } from 'node:fs/promises';
import { basename, relative } from 'node:path';
import { availableParallelism, totalmem } from 'node:os';
import { REPOSITORY } from '../setup/paths.mjs';

const LANES = 2;
/** Of a file that no run has measured. */
const UNKNOWN_SECONDS = 60;
const MEMORY_PER_LANE_BYTES = 4 * 1024 ** 3;

export const ALONE = new Set([
  'capacity.test.ts',
  'doctor.test.ts',
  'greedy-guests.test.ts',
  'guest-timer.test.ts',
  // Chromium gives up the connections that it is making when a TAP of another lane comes or goes (ERR_NETWORK_CHANGED).
  'preview.test.ts',
  'stream-load.test.ts',
  'template-queue.test.ts',
]);

/** Fixtures that keep one service, with its images and templates, for all files that use them. */
const SHARING = [/fixtures\/(?:shared|client|clone-check|image-kind)\.ts'/u, /fixtures\/egress-shared\.ts'/u];

/**
 * A job is a list of files that run in one process, one after the other.
 * @typedef {{ together: string[][], alone: string[] }} LanePlan
 *
 * @param {readonly string[]} files
 * @param {ReadonlyMap<string, number>} times  seconds of an earlier run, by path in the repository
 * @returns {Promise<LanePlan>}
 */
export async function planLanes(files, times) {
  /** @type {string[]} */
  const alone = [];
  /** @type {Map<string, string[]>} */
  const jobs = new Map();
  for (const file of files) {
    if (ALONE.has(basename(file))) {
      alone.push(file);
      continue;
    }
    const text = await readFile(file, 'utf8');
    const sharing = SHARING.findIndex((pattern) => pattern.test(text));
    const key = sharing < 0 ? file : String(sharing);
    jobs.set(key, [...(jobs.get(key) ?? []), file]);
  }
  const secondsOf = (/** @type {string[]} */ job) =>
    job.reduce((sum, file) => sum + (times.get(relative(REPOSITORY, file)) ?? UNKNOWN_SECONDS), 0);
  // The longest first: at the end the lanes are done at about the same time.
  return { together: [...jobs.values()].toSorted((a, b) => secondsOf(b) - secondsOf(a)), alone };
}

/** @returns {number} how many lanes this host can run at once */
export function countLanes() {
  return Math.max(1, Math.min(LANES, availableParallelism(), Math.floor(totalmem() / MEMORY_PER_LANE_BYTES)));
}

/**
 * @param {readonly string[][]} jobs
 * @param {number} lanes
 * @param {(job: string[], lane: number) => Promise<void>} run
 */
export async function runInLanes(jobs, lanes, run) {
  const left = [...jobs];
  const work = async (/** @type {number} */ lane) => {
    for (let job = left.shift(); job !== undefined; job = left.shift()) await run(job, lane);
  };
  await Promise.all(Array.from({ length: lanes }, (_, lane) => work(lane)));
}
