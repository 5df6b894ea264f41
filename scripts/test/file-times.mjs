/** How long test files took: told after each run, and kept for the order of the next one. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { REPOSITORY } from '../setup/paths.mjs';

const SHOWN_FILES = 20;
/** In the repository: a clean checkout starts the longest files first, too. */
const RECORD = join(REPOSITORY, 'scripts', 'test', 'recorded-times.json');

/**
 * From the first to the last event of each file; they overlap where files run at once.
 * @param {readonly import('./event-reporter.mjs').TestEvent[]} events
 * @returns {Map<string, number>} seconds by path in the repository
 */
export function measureFileTimes(events) {
  /** @type {Map<string, { from: number, to: number }>} */
  const spans = new Map();
  for (const { kind, file, atMs } of events) {
    // Whether a test passed is told in the order of the files, long after its end where an earlier file still runs.
    if (kind !== 'begin' && kind !== 'end') continue;
    const span = spans.get(file);
    // A file is queued long before its turn comes: its time begins with its first test.
    if (span === undefined && kind !== 'begin') continue;
    spans.set(file, { from: span?.from ?? atMs, to: atMs });
  }
  return new Map([...spans].map(([file, { from, to }]) => [relative(REPOSITORY, file), (to - from) / 1000]));
}

/**
 * @param {ReadonlyMap<string, number>} times
 * @returns {string} the longest ones, for people; empty when there is nothing to tell
 */
export function describeFileTimes(times) {
  const longest = [...times].toSorted((a, b) => b[1] - a[1]).slice(0, SHOWN_FILES);
  const lines = longest.map(([file, seconds]) => `  ${seconds.toFixed(1).padStart(7)} s  ${file}`);
  return lines.length < 2 ? '' : ['longest:', ...lines, ''].join('\n');
}

/** @returns {Map<string, number>} seconds of an earlier run, by path in the repository */
export function readRecordedTimes() {
  return new Map(Object.entries(JSON.parse(readFileSync(RECORD, 'utf8'))));
}

/**
 * @param {readonly string[]} files absolute
 * @returns {string[]} the longest first, as an earlier run measured them, after those that none has measured
 */
export function longestFirst(files) {
  const times = readRecordedTimes();
  const secondsOf = (/** @type {string} */ file) => times.get(relative(REPOSITORY, file)) ?? Infinity;
  return files.toSorted((a, b) => secondsOf(b) - secondsOf(a) || 0);
}

/** @param {ReadonlyMap<string, number>} times of files; of others what is kept stays */
export function recordTimes(times) {
  const rounded = new Map([...times].map(([file, seconds]) => [file, Math.ceil(seconds)]));
  const sorted = [...readRecordedTimes(), ...rounded].toSorted(([a], [b]) => (a < b ? -1 : 1));
  writeFileSync(RECORD, `${JSON.stringify(Object.fromEntries(sorted), null, 2)}\n`);
}
