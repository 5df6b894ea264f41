/**
 * Which files of `e2e/` run at once. One virtual machine leaves most of a second processor idle, so two lanes take one
 * job after the other; what measures time, loads the host or changes it for all runs alone after them.
 */
import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { availableParallelism, totalmem } from 'node:os';

const LANES = 2;
const MEMORY_PER_LANE_BYTES = 4 * 1024 ** 3;

export const ALONE = new Set([
  'after-streams.test.ts',
  'capacity.test.ts',
  'cgroup-v2.test.ts',
  'doctor.test.ts',
  'greedy-guests.test.ts',
  'guest-timer.test.ts',
  'stream-load.test.ts',
  'template-queue.test.ts',
  'warm-pool.test.ts',
]);

/** Fixtures that keep one service, with its images and templates, for all files that use them. */
const SHARING = [/fixtures\/(?:shared|client|clone-check|image-kind)\.ts'/u, /fixtures\/egress-shared\.ts'/u];

/**
 * A job is a list of files that run in one process, one after the other.
 * @typedef {{ together: string[][], alone: string[] }} LanePlan
 *
 * @param {readonly string[]} files
 * @returns {Promise<LanePlan>}
 */
export async function planLanes(files) {
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
  // The longest first, as near as the number of files tells.
  return { together: [...jobs.values()].toSorted((a, b) => b.length - a.length), alone };
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
