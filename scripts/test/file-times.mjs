/** How long test files took: told after each run, and kept for the order of the next one. */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { REPOSITORY } from '../setup/paths.mjs';

const SHOWN_FILES = 20;
/** In the repository: a clean checkout starts the longest files first, too. */
const KEPT = join(REPOSITORY, 'scripts', 'test', 'recorded-times.json');
const LAST = join(REPOSITORY, '.cache', 'test-times.json');

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

/** @returns {Map<string, number>} seconds of the last run here, else of the one that is kept, by path in the repository */
export function readTimes() {
  return new Map([...readFrom(KEPT), ...readFrom(LAST)]);
}

/** @param {ReadonlyMap<string, number>} times of some files */
export function writeLastTimes(times) {
  mkdirSync(dirname(LAST), { recursive: true });
  writeTo(LAST, new Map([...readFrom(LAST), ...times]));
}

/** @param {ReadonlyMap<string, number>} times of some files */
export function keepTimes(times) {
  writeLastTimes(times);
  // Of all files there are, and of no other.
  writeTo(KEPT, new Map([...readTimes()].filter(([file]) => existsSync(join(REPOSITORY, file)))));
}

/** @param {string} path */
function readFrom(path) {
  /** @type {Record<string, number>} */
  const seconds = existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : {};
  return new Map(Object.entries(seconds));
}

/**
 * @param {string} path
 * @param {ReadonlyMap<string, number>} times
 */
function writeTo(path, times) {
  const rounded = [...times].map(([file, seconds]) => /** @type {const} */ ([file, Math.ceil(seconds)]));
  const sorted = rounded.toSorted(([a], [b]) => (a < b ? -1 : 1));
  writeFileSync(path, `${JSON.stringify(Object.fromEntries(sorted), null, 2)}\n`);
}
