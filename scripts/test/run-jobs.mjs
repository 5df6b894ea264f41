/**
 * The order in which everything runs. A job is what one process does:
 *
 *     single  on virtual machines, with no other such job: one after the other, before the lanes
 *     lane    on virtual machines; one for each processor and three at most, as far as there is memory for them. With one
 *             more, all took longer: who asks a guest whether it is done takes the time that it needs to get there. Only when
 *             nothing else is left there is one more, as the others leave a fifth of the time idle
 *     beside  needs none: one job fills what the others leave idle, a second one while there are single ones, and each lane
 *             takes such jobs once its own are done
 *     alone   measures time: one after the other, when all the others are done
 *     heavy   loads the host: one after the other, after those
 *     spare   needs no machine, and can wait: takes what the heavy ones leave idle, at a low priority
 *
 * The longest come first, as an earlier run measured them: at the end all lanes are done at about the same time.
 */
import { availableParallelism, totalmem } from 'node:os';

const MAX_LANES = 3;
const MEMORY_PER_LANE_BYTES = 4 * 1024 ** 3;

/**
 * @typedef {'single' | 'lane' | 'beside' | 'alone' | 'heavy' | 'spare'} Place
 *
 * @typedef {object} JobResult
 * @property {import('./counts.mjs').Counts} counts
 * @property {ReadonlyMap<string, number>} [times]  seconds of each of its test files, by path in the repository
 *
 * @typedef {object} JobContext
 * @property {number} lane  no two jobs that run at once have the same
 * @property {(line: string) => void} print
 *
 * @typedef {object} Job
 * @property {string} suite
 * @property {string} title  for people
 * @property {Place} place
 * @property {number} seconds  that it took before, or a guess
 * @property {(context: JobContext) => Promise<JobResult>} run
 */

/** @returns {number} how many jobs on virtual machines this host can run at once, and at the end one more */
export function countLanes() {
  const forMemory = Math.floor(totalmem() / MEMORY_PER_LANE_BYTES) - 1;
  return Math.max(1, Math.min(MAX_LANES, availableParallelism(), forMemory));
}

/**
 * @param {readonly Job[]} jobs
 * @param {number} lanes
 * @param {(job: Job, lane: number) => Promise<void>} run
 */
export async function runJobs(jobs, lanes, run) {
  const queueOf = (/** @type {Place} */ place) =>
    jobs.filter((job) => job.place === place).toSorted((a, b) => b.seconds - a.seconds);
  const [single, onMachines] = [queueOf('single'), queueOf('lane')];
  const beside = queueOf('beside');
  const [alone, heavy, spare] = [queueOf('alone'), queueOf('heavy'), queueOf('spare')];
  const work = async (/** @type {number} */ lane, /** @type {() => Job | undefined} */ next) => {
    for (let job = next(); job !== undefined; job = next()) await run(job, lane);
  };
  let isSingle = true;
  const singles = work(0, () => single.shift()).finally(() => (isSingle = false));
  const workInLane = async (/** @type {number} */ lane) => {
    // The shortest: its own jobs wait for it.
    if (lane === 1) await work(lane, () => (isSingle ? beside.pop() : undefined));
    await singles;
    await work(lane, () => onMachines.shift() ?? beside.shift());
  };
  const working = Array.from({ length: lanes }, (_, lane) => workInLane(lane));
  const helping = async () => {
    await work(lanes, () => beside.shift());
    await singles;
    await work(lanes, () => onMachines.shift());
  };
  await Promise.all([...working, helping()]);
  await work(0, () => alone.shift());
  await Promise.all([work(0, () => heavy.shift()), work(1, () => spare.shift())]);
}
