import { cpus } from 'node:os';
import { addCounts, failure, NOTHING } from './counts.mjs';
import { describeLoopback, findLoopbackFault } from './loopback.mjs';

/** Whoever makes the tests slower says so there. */
export const BUDGET_FILE = 'scripts/test/budget.json';
/** CI shows the end of what was printed. */
const SHOWN_FAILURES = 40;
const SHOWN_REASONS = 8;

/**
 * @typedef {import('./counts.mjs').Counts} Counts
 * @typedef {{ name: string, title: string, run: () => Promise<Counts> }} Part
 */

/**
 * Runs all of them, also after one has failed.
 * @param {readonly Part[]} parts
 * @param {Readonly<Record<string, number>>} [budget]  seconds, by name
 * @returns {Promise<Counts>}
 */
export async function runSuites(parts, budget = {}) {
  let total = NOTHING;
  /** @type {string[]} */
  const times = [];
  let loopbackFault = await findLoopbackFault();
  if (loopbackFault !== undefined)
    total = addCounts(total, reportLoopback('before the tests', loopbackFault));
  for (const { name, title, run } of parts) {
    process.stdout.write(`\n=== ${name}: ${title}\n`);
    const startedAt = performance.now();
    const before = readCpuTimes();
    const counts = await run();
    const seconds = Math.round((performance.now() - startedAt) / 1000);
    times.push(`${name} ${seconds} s (${describeIdle(before, readCpuTimes())})`);
    process.stdout.write(`${name} took ${seconds} s\n`);
    const budgetSeconds = budget[name] ?? Infinity;
    if (seconds > budgetSeconds)
      total = addCounts(
        total,
        failure(`${name} took ${seconds} s, more than the ${budgetSeconds} s of ${BUDGET_FILE}`),
      );
    total = addCounts(total, { ...counts, failures: counts.failures.map((line) => `${name}: ${line}`) });
    if (loopbackFault !== undefined) continue; // already known, and one loss is one failure
    loopbackFault = await findLoopbackFault();
    if (loopbackFault !== undefined) total = addCounts(total, reportLoopback(`after ${name}`, loopbackFault));
  }
  process.stdout.write(`\ntime: ${times.join(', ')}\n`);
  return total;
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
 * How far a suite could be faster with more at once.
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
  const line = `${when} nobody can listen on 127.0.0.1 any more: ${fault}`;
  process.stdout.write(`\n!!! ${line}\n${describeLoopback()}`);
  return failure(line);
}

/** @param {Counts} total */
export function formatTotal({ passed, failed, skipped, failures }) {
  const lines = failures
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
