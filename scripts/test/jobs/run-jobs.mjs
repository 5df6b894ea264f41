/**
 * The order in which all jobs run. A job is the work of one process. Its place is one of:
 *
 *     single  uses VMs and must not run with other jobs on VMs: one after the other, before the lanes
 *     lane    uses VMs; one lane for each processor, three at most, and only as many as memory allows. With one more
 *             lane all jobs took longer, because polling a guest takes the CPU time that the guest needs to finish. An
 *             extra lane starts only when no other job is left, as the lanes leave a fifth of the CPU time idle
 *     beside  needs no VM: one such job uses what the others leave idle, a second one runs while there are single jobs,
 *             and each lane takes such jobs once its own are done
 *     alone   measures time: one after the other, when all jobs above are done
 *     heavy   loads the host: one after the other, after the alone jobs
 *     spare   needs no VM and can wait: uses what the heavy jobs leave idle, at a low priority
 *
 * The longest jobs start first, by the times of an earlier run, so that all lanes finish at about the same time.
 */
import { availableParallelism, totalmem } from 'node:os';

const MAX_LANES = 3;
const MEMORY_PER_LANE_BYTES = 4 * 1024 ** 3;

/**
 * @typedef {'single' | 'lane' | 'beside' | 'alone' | 'heavy' | 'spare'} Place
 *
 * @typedef {object} JobResult
 * @property {import('../results/counts.mjs').Counts} counts
 * @property {ReadonlyMap<string, number>} [times]  seconds of each of its test files, by path in the repository
 *
 * @typedef {object} JobContext
 * @property {number} lane  different for all jobs that run at the same time
 * @property {(line: string) => void} print
 *
 * @typedef {object} Job
 * @property {string} suite
 * @property {string} title  for people
 * @property {Place} place
 * @property {number} seconds  time that an earlier run took, or a guess
 * @property {(context: JobContext) => Promise<JobResult>} run
 */

/** @returns {number} lanes that this host can run at once; at the end `runJobs` adds one more */
export function countLanes() {
  const forMemory = Math.floor(totalmem() / MEMORY_PER_LANE_BYTES) - 1;
  return Math.max(1, Math.min(MAX_LANES, availableParallelism(), forMemory));
}

/**
 * Runs all jobs, in the order that is described above.
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
    // Takes the shortest jobs first, because this lane's own jobs wait for them.
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
