/**
 * Turns the events of `go test -json` into readable text and counts. Failed and skipped tests are shown with their
 * output, a passed package with one line.
 */

import { addCounts, failure, NOTHING, PASS, SKIP } from './counts.mjs';

/** Output kept per test until its result is known. */
const OUTPUT_LIMIT_CHARACTERS = 64 * 1024;

/** @typedef {{ Action?: string, Package?: string, ImportPath?: string, Test?: string, Output?: string, Elapsed?: number }} GoEvent */

export class GoEvents {
  /** @type {import('./counts.mjs').Counts} */
  counts = NOTHING;
  /** @type {Map<string, string>} */
  #outputs = new Map();
  /** Packages with a failed test: the failure of the package itself does not count again. */
  #failedPackages = new Set();
  /** @type {Map<string, string>} names for people */
  #running = new Map();
  #write;

  /** @param {(text: string) => void} write */
  constructor(write) {
    this.#write = write;
  }

  /** @param {string} line */
  accept(line) {
    const event = parseEvent(line);
    if (event === undefined) this.#write(`${line}\n`);
    else if (event.Action === 'output' || event.Action === 'build-output') this.#keep(event);
    else if (event.Action === 'run') this.#running.set(keyOf(event), nameOf(event));
    else if (event.Test === undefined) this.#endPackage(event);
    else this.#endTest(event);
  }

  /** @returns {string[]} tests that have begun and not ended, for people */
  get unfinished() {
    return [...this.#running.values()];
  }

  /** @param {GoEvent} event */
  #keep(event) {
    const key = keyOf(event);
    this.#outputs.set(
      key,
      ((this.#outputs.get(key) ?? '') + (event.Output ?? '')).slice(-OUTPUT_LIMIT_CHARACTERS),
    );
  }

  /** @param {GoEvent} event */
  #endTest(event) {
    if (event.Action === 'pass') this.#count(PASS);
    else if (event.Action === 'skip') this.#count(SKIP);
    else if (event.Action !== 'fail') return;
    if (event.Action === 'fail') {
      this.#count(failure(nameOf(event)));
      this.#failedPackages.add(event.Package);
    }
    // The output of a skipped test has the reason.
    if (event.Action !== 'pass') this.#write(this.#outputs.get(keyOf(event)) ?? '');
    this.#outputs.delete(keyOf(event));
    this.#running.delete(keyOf(event));
  }

  /** @param {GoEvent} event */
  #endPackage(event) {
    if (event.Action === 'pass') this.#write(`ok    ${event.Package} (${event.Elapsed ?? 0} s)\n`);
    if (event.Action === 'build-fail') this.#write(this.#outputs.get(keyOf(event)) ?? '');
    if (event.Action !== 'fail') return;
    this.#write(`${this.#outputs.get(keyOf(event)) ?? ''}FAIL  ${event.Package}\n`);
    if (!this.#failedPackages.has(event.Package))
      this.#count(failure(`${event.Package} (it did not build, or crashed outside of a test)`));
  }

  /** @param {import('./counts.mjs').Counts} counts */
  #count(counts) {
    this.counts = addCounts(this.counts, counts);
  }
}

/**
 * @param {string} line
 * @returns {GoEvent | undefined}
 */
function parseEvent(line) {
  if (!line.startsWith('{')) return undefined;
  try {
    return JSON.parse(line);
  } catch {
    return undefined; // a line that a program printed outside of the test log
  }
}

/** @param {GoEvent} event */
function keyOf(event) {
  return `${event.Package ?? event.ImportPath ?? ''}\0${event.Test ?? ''}`;
}

/** @param {GoEvent} event */
function nameOf(event) {
  return `${event.Test ?? ''} (${event.Package ?? ''})`;
}
