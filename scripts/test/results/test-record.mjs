import { relative } from 'node:path';
import { REPOSITORY } from '../../setup/paths.mjs';
import { addCounts, failure, NOTHING, PASS, SKIP } from './counts.mjs';
import { measureFileTimes } from './file-times.mjs';

/**
 * Summarizes a run of `node --test` from the lines of `event-reporter.mjs`. The run may have been killed.
 * @param {string} text
 * @param {readonly string[]} files all files of the run
 * @returns {{ counts: import('./counts.mjs').Counts, unfinished: string[], times: Map<string, number> }}
 *   `unfinished` lists, for people, files with tests that began and did not end, and files that did not begin;
 *   `times` has the seconds of each file by its path in the repository
 */
export function summarizeRecord(text, files) {
  let counts = NOTHING;
  /** @type {Map<string, string[]>} names of running tests by file */
  const running = new Map();
  const events = parseEvents(text);
  for (const event of events) {
    const open = running.get(event.file) ?? [];
    running.set(event.file, open);
    if (event.kind === 'begin') open.push(event.name);
    else if (event.kind === 'end') remove(open, event.name);
    else if (event.kind === 'pass') counts = addCounts(counts, PASS);
    else if (event.kind === 'skip') counts = addCounts(counts, SKIP);
    else counts = addCounts(counts, failure(`${event.name} (${placeOf(event)})`, event.reason));
  }
  const unfinished = files.flatMap((file) => describeUnfinished(file, running.get(file)));
  return { counts, unfinished, times: measureFileTimes(events) };
}

/**
 * @param {string} text the last line of a run that was killed may be cut off
 * @returns {import('./event-reporter.mjs').TestEvent[]}
 */
function parseEvents(text) {
  const whole = text.slice(0, text.lastIndexOf('\n') + 1);
  return whole
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));
}

/**
 * @param {string[]} names
 * @param {string} name
 */
function remove(names, name) {
  const index = names.indexOf(name);
  if (index >= 0) names.splice(index, 1);
}

/**
 * @param {string} file
 * @param {string[] | undefined} open
 */
function describeUnfinished(file, open) {
  const path = relative(REPOSITORY, file);
  if (open === undefined) return [`${path}: not begun`];
  if (open.length === 0) return [];
  const tests = open.filter((name) => name !== file && name !== path);
  return [tests.length === 0 ? path : `${path}: ${tests.join(' > ')}`];
}

/** @param {import('./event-reporter.mjs').TestEvent} event */
function placeOf({ file, line }) {
  return `${relative(REPOSITORY, file)}${line === undefined ? '' : `:${line}`}`;
}
