import { relative } from 'node:path';
import { REPOSITORY } from '../setup/paths.mjs';

const SHOWN_FILES = 20;

/**
 * Where the time of a suite went: from the first to the last event of each file, which overlap where files run at once.
 * @param {readonly import('./event-reporter.mjs').TestEvent[]} events
 * @returns {string} the longest ones, for people; empty when there is nothing to tell
 */
export function describeFileTimes(events) {
  /** @type {Map<string, { from: number, to: number }>} */
  const spans = new Map();
  for (const { kind, file, atMs } of events) {
    const span = spans.get(file);
    // A file is queued long before its turn comes: its time begins with its first test.
    if (span === undefined && kind !== 'begin') continue;
    spans.set(file, { from: span?.from ?? atMs, to: atMs });
  }
  const longest = [...spans].map(([file, { from, to }]) => ({ file, ms: to - from }));
  longest.sort((a, b) => b.ms - a.ms);
  const lines = longest.slice(0, SHOWN_FILES).map(({ file, ms }) => `  ${describe(ms)}  ${nameOf(file)}`);
  return lines.length < 2 ? '' : ['longest:', ...lines, ''].join('\n');
}

/** @param {number} ms */
function describe(ms) {
  return `${(ms / 1000).toFixed(1).padStart(7)} s`;
}

/** @param {string} file */
function nameOf(file) {
  return relative(REPOSITORY, file);
}
