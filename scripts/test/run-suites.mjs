import { readFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { REPOSITORY } from '../setup/paths.mjs';
import { describeError } from '../setup/setup-error.mjs';
import { addCounts, failure, NOTHING } from './results/counts.mjs';
import { describeFileTimes } from './results/file-times.mjs';
import { describeLoopback, findLoopbackFault } from './loopback.mjs';
import { measureMachine } from './machine-speed.mjs';
import { countLanes, runJobs } from './jobs/run-jobs.mjs';

/** A change that makes the tests slower must raise the budget in this file. */
export const BUDGET_FILE = 'scripts/test/budget.json';
/** CI shows only the end of the output. */
const SHOWN_FAILURES = 40;
/** Limit of the slowdown: a machine that seems slower than this was busy with other work while it was measured. */
const MAX_FACTOR = 2;
const SHOWN_REASONS = 8;
/** The reason of tests that never ran, because a step before them failed. */
const CANCELLED = 'test did not finish before its parent and was cancelled';

/**
 * @typedef {import('./results/counts.mjs').Counts} Counts
 * @typedef {import('./jobs/run-jobs.mjs').Job} Job
 *
 * @typedef {object} Budget
 * @property {number} seconds  for all suites, on a machine on which `measureMachine` takes `reference_ms`
 * @property {number} reference_ms
 *
 * @typedef {object} SuitesOptions
 * @property {number} [lanes]
 * @property {Budget} [budget]
 * @property {(times: ReadonlyMap<string, number>) => void} [keepTimes]  seconds of each file, by path in the repository
 */

/** @returns {Budget} */
export function readBudget() {
  return JSON.parse(readFileSync(join(REPOSITORY, BUDGET_FILE), 'utf8'));
}

/**
 * Runs all jobs, also after one has failed. Prints the output of each job when it has ended.
 * @param {readonly Job[]} jobs
 * @param {SuitesOptions} [options]
 * @returns {Promise<Counts>}
 */
export async function runSuites(jobs, { lanes = countLanes(), budget, keepTimes } = {}) {
  let total = NOTHING;
  /** @type {Map<string, number>} */
  const times = new Map();
  /** @type {Map<string, number>} */
  const suites = new Map();
  const before = await findLoopbackFault();
  if (before !== undefined) total = addCounts(total, reportLoopback('before the tests', before));
  const machineMs = budget === undefined ? 0 : measureMachine();
  const startedAt = performance.now();
  const cpuBefore = readCpuTimes();

  await runJobs(jobs, lanes, async (job, lane) => {
    process.stdout.write(`... ${job.title}\n`);
    const begunAt = performance.now();
    /** @type {string[]} */
    const lines = [];
    /** @type {import('./jobs/run-jobs.mjs').JobResult} */
    const result = await job
      .run({ lane, print: (line) => lines.push(line) })
      .catch((error) => ({ counts: failure(`${job.title} did not end: ${describeError(error)}`) }));
    const seconds = (performance.now() - begunAt) / 1000;
    process.stdout.write(`\n--- ${job.title} (${seconds.toFixed(1)} s)\n${lines.join('\n')}\n\n`);
    suites.set(job.suite, (suites.get(job.suite) ?? 0) + seconds);
    for (const [file, fileSeconds] of result.times ?? []) times.set(file, fileSeconds);
    const failures = result.counts.failures.map((line) => `${job.suite}: ${line}`);
    total = addCounts(total, { ...result.counts, failures });
  });

  const after = before ?? (await findLoopbackFault());
  if (after !== before) total = addCounts(total, reportLoopback('after the tests', String(after)));
  const seconds = (performance.now() - startedAt) / 1000;
  process.stdout.write(describeFileTimes(times));
  process.stdout.write(
    `time: ${Math.round(seconds)} s, processors ${describeIdle(cpuBefore, readCpuTimes())}; jobs of ${[
      ...suites,
    ]
      .map(([name, sum]) => `${name} ${Math.round(sum)} s`)
      .join(', ')}\n`,
  );
  keepTimes?.(times);
  return budget === undefined ? total : addCounts(total, judgeTime(seconds, machineMs, budget));
}

/**
 * Compares the time of the suites with the budget.
 * @param {number} seconds
 * @param {number} machineMs  time of `measureMachine` on this machine
 * @param {Budget} budget
 * @returns {Counts}
 */
export function judgeTime(seconds, machineMs, { seconds: allowed, reference_ms: referenceMs }) {
  const factor = Math.min(MAX_FACTOR, Math.max(1, machineMs / referenceMs));
  const limit = Math.round(allowed * factor);
  const machine = `${allowed} s of ${BUDGET_FILE} on a machine that is ${factor.toFixed(2)} times slower`;
  process.stdout.write(`budget: ${limit} s, the ${machine}\n`);
  if (seconds <= limit) return NOTHING;
  return failure(`the tests took ${Math.round(seconds)} s, more than ${limit} s: the ${machine}`);
}

/** @returns {{ idle: number, all: number }} of all processors since the host's boot, in milliseconds */
function readCpuTimes() {
  const sum = { idle: 0, all: 0 };
  for (const { times } of cpus()) {
    sum.idle += times.idle;
    for (const ms of Object.values(times)) sum.all += ms;
  }
  return sum;
}

/**
 * Describes how much processor time the tests left idle: more jobs in parallel could use it.
 * @param {ReturnType<typeof readCpuTimes>} before
 * @param {ReturnType<typeof readCpuTimes>} after
 */
function describeIdle(before, after) {
  const all = after.all - before.all;
  return `${all === 0 ? 0 : Math.round((100 * (after.idle - before.idle)) / all)} % idle`;
}

/**
 * @param {string} when
 * @param {string} fault
 */
function reportLoopback(when, fault) {
  const line = `${when} no program can listen on 127.0.0.1: ${fault}`;
  process.stdout.write(`\n!!! ${line}\n${describeLoopback()}`);
  return failure(line);
}

/** @param {Counts} total */
export function formatTotal({ passed, failed, skipped, failures }) {
  const isCancelled = (/** @type {string} */ text) => Number(text.includes(CANCELLED));
  const lines = failures
    .toSorted((a, b) => isCancelled(a) - isCancelled(b))
    .slice(0, SHOWN_FAILURES)
    .map((text, index) => indentFailure(text, index < SHOWN_REASONS));
  if (failures.length > SHOWN_FAILURES) lines.push(`  and ${failures.length - SHOWN_FAILURES} more`);
  if (lines.length > 0) lines.unshift('failed:');
  if (skipped > 0) lines.push(`${skipped} skipped`);
  return `${[...lines, `${passed} passed, ${failed} failed`].join('\n')}\n`;
}

/**
 * @param {string} text
 * @param {boolean} isWhole  with the reason
 */
function indentFailure(text, isWhole) {
  const [what, ...why] = text.split('\n');
  return isWhole ? [`  ${what}`, ...why.map((line) => `      ${line}`)].join('\n') : `  ${what}`;
}
