/** How long test files took: printed after each run, and saved for the order of the next one. */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { REPOSITORY } from '../../setup/paths.mjs';

const SHOWN_FILES = 20;
/** Part of the repository, so that a clean checkout starts the longest files first, too. */
const KEPT = join(REPOSITORY, 'scripts', 'test', 'recorded-times.json');
const LAST = join(REPOSITORY, '.cache', 'test-times.json');

/**
 * Measures each file from its first event to its last. Times of files that run in parallel overlap.
 * @param {readonly import('./event-reporter.mjs').TestEvent[]} events
 * @returns {Map<string, number>} seconds by path in the repository
 */
export function measureFileTimes(events) {
  /** @type {Map<string, { from: number, to: number }>} */
  const spans = new Map();
  for (const { kind, file, atMs } of events) {
    // Node reports `pass` and `fail` in the order of the files, possibly long after the test ended.
    if (kind !== 'begin' && kind !== 'end') continue;
    const span = spans.get(file);
    // A file is queued long before it runs: its time begins with its first test.
    if (span === undefined && kind !== 'begin') continue;
    spans.set(file, { from: span?.from ?? atMs, to: atMs });
  }
  return new Map([...spans].map(([file, { from, to }]) => [relative(REPOSITORY, file), (to - from) / 1000]));
}

/**
 * @param {ReadonlyMap<string, number>} times
 * @returns {string} the files that took longest, for people; empty for fewer than two files
 */
export function describeFileTimes(times) {
  const longest = [...times].toSorted((a, b) => b[1] - a[1]).slice(0, SHOWN_FILES);
  const lines = longest.map(([file, seconds]) => `  ${seconds.toFixed(1).padStart(7)} s  ${file}`);
  return lines.length < 2 ? '' : ['longest:', ...lines, ''].join('\n');
}

/** @returns {Map<string, number>} seconds of the last run here, else the recorded ones, by path in the repository */
export function readTimes() {
  return new Map([...readRecordedTimes(), ...readFrom(LAST)]);
}

/** @returns {Map<string, number>} the same for everyone, by path in the repository */
export function readRecordedTimes() {
  return readFrom(KEPT);
}

/** @param {ReadonlyMap<string, number>} times of some files */
export function writeLastTimes(times) {
  mkdirSync(dirname(LAST), { recursive: true });
  writeTo(LAST, new Map([...readFrom(LAST), ...times]));
}

/** @param {ReadonlyMap<string, number>} times of some files */
export function keepTimes(times) {
  writeLastTimes(times);
  // Keep only files that still exist.
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
