/**
 * A reporter for `node --test` that writes one JSON line for each event as it happens: the record of a killed run still
 * shows which tests passed, which failed and which were running. `test-record.mjs` reads the lines.
 */

import { inspect } from 'node:util';

/** Longest text of an error, in characters: CI shows only the end of a long run. */
const REASON_LIMIT = 1500;

/**
 * @typedef {object} TestEvent
 * @property {'begin' | 'end' | 'pass' | 'fail' | 'skip'} kind  `end` does not say whether it passed
 * @property {string} name
 * @property {string} file
 * @property {number} [line]
 * @property {string} [reason]  of a failure: the error, truncated
 * @property {number} atMs  since the run began
 *
 * @typedef {object} NodeEventData
 * @property {string} name
 * @property {string} [file]
 * @property {number} [line]
 * @property {unknown} [skip]
 * @property {{ type?: string, error?: Error & { failureType?: string } }} [details]
 *
 * @typedef {{ type: string, data: NodeEventData }} NodeEvent
 */

/** @param {AsyncIterable<NodeEvent>} source */
async function* report(source) {
  for await (const { type, data } of source) {
    const kind = kindOf(type, data);
    if (kind === undefined) continue;
    /** @type {TestEvent} */
    const event = {
      kind,
      name: data.name,
      file: data.file ?? data.name,
      ...lineOf(data),
      ...(kind === 'fail' ? { reason: reasonOf(data) } : {}),
      atMs: performance.now(),
    };
    yield `${JSON.stringify(event)}\n`;
  }
}

/** @param {NodeEventData} data */
function lineOf(data) {
  return data.line === undefined ? {} : { line: data.line };
}

/**
 * Returns the text of the error that a test threw. Node wraps that error in one of its own.
 * @param {NodeEventData} data
 */
export function reasonOf({ details }) {
  const error = details?.error;
  const text = inspect(error?.cause ?? error, { breakLength: 120, maxStringLength: 500 });
  return text.length > REASON_LIMIT ? `${text.slice(0, REASON_LIMIT)} …` : text;
}

/**
 * Returns the kind of an event; undefined for events that do not count. Suites (`describe`) do not count, but the tests
 * in them do. A failed hook of a suite counts too, because no test reports it. Node reports a file that crashes as a
 * failed test with the file's name.
 * @param {string} type
 * @param {NodeEventData} data
 * @returns {TestEvent['kind'] | undefined}
 */
export function kindOf(type, data) {
  if (type === 'test:dequeue') return 'begin';
  if (type === 'test:complete') return 'end';
  if (type !== 'test:pass' && type !== 'test:fail') return undefined;
  const isSuite = data.details?.type === 'suite';
  if (isSuite && (type === 'test:pass' || data.details?.error?.failureType === 'subtestsFailed'))
    return undefined;
  // Node reports `skip: undefined` for a test that ran, and `true` or a reason for a skipped one.
  if (data.skip !== undefined && data.skip !== false) return 'skip';
  return type === 'test:pass' ? 'pass' : 'fail';
}

// oxlint-disable-next-line import/no-default-export -- Node loads a reporter by its default export
export default report;
