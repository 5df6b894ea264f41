/**
 * A reporter for `node --test` that writes one JSON line for each thing that happens, when it happens: a run that
 * is killed has still said what passed, what failed and what it was at. `test-record.mjs` reads them.
 */

import { inspect } from 'node:util';

/** Of an error, in characters: what CI shows of a long run is only its end. */
const REASON_LIMIT = 1500;

/**
 * @typedef {object} TestEvent
 * @property {'begin' | 'end' | 'pass' | 'fail' | 'skip'} kind  `end` says nothing about how
 * @property {string} name
 * @property {string} file
 * @property {number} [line]
 * @property {string} [reason]  of a failure: the error, cut off where it is long
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
 * Node wraps what a test threw in an error of its own.
 * @param {NodeEventData} data
 */
export function reasonOf({ details }) {
  const error = details?.error;
  const text = inspect(error?.cause ?? error, { breakLength: 120, maxStringLength: 500 });
  return text.length > REASON_LIMIT ? `${text.slice(0, REASON_LIMIT)} …` : text;
}

/**
 * Suites (`describe`) are not counted, the tests in them are; a hook of a suite that fails is, or nothing would say
 * why. A file that dies is reported by Node as a failed test of its name.
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
  // Node reports `skip: undefined` for a test that ran, and `true` or a reason for one that did not.
  if (data.skip !== undefined && data.skip !== false) return 'skip';
  return type === 'test:pass' ? 'pass' : 'fail';
}

// oxlint-disable-next-line import/no-default-export -- Node loads a reporter by its default export
export default report;
