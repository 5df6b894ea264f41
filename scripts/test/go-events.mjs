/**
 * Turns the events of `go test -json` into readable output and numbers: what failed is shown with its output,
 * what passed with a line for its package.
 */

/** Kept per test until its result is known. */
const OUTPUT_LIMIT_CHARACTERS = 64 * 1024;

/** @typedef {{ Action?: string, Package?: string, ImportPath?: string, Test?: string, Output?: string, Elapsed?: number }} GoEvent */

export class GoEvents {
  /** @type {import('./counts.mjs').Counts} */
  counts = { passed: 0, failed: 0, skipped: 0 };
  /** @type {Map<string, string>} */
  #outputs = new Map();
  /** Packages with a failed test: their own failure is not one more. */
  #failedPackages = new Set();
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
    else if (event.Test === undefined) this.#endPackage(event);
    else this.#endTest(event);
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
    if (event.Action === 'pass') this.counts.passed += 1;
    else if (event.Action === 'skip') this.counts.skipped += 1;
    else if (event.Action !== 'fail') return;
    if (event.Action === 'fail') {
      this.counts.failed += 1;
      this.#failedPackages.add(event.Package);
      this.#write(this.#outputs.get(keyOf(event)) ?? '');
    }
    this.#outputs.delete(keyOf(event));
  }

  /** @param {GoEvent} event */
  #endPackage(event) {
    if (event.Action === 'pass') this.#write(`ok    ${event.Package} (${event.Elapsed ?? 0} s)\n`);
    if (event.Action === 'build-fail') this.#write(this.#outputs.get(keyOf(event)) ?? '');
    if (event.Action !== 'fail') return;
    this.#write(`${this.#outputs.get(keyOf(event)) ?? ''}FAIL  ${event.Package}\n`);
    if (!this.#failedPackages.has(event.Package)) this.counts.failed += 1; // it did not build, or died outside of a test
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
    return undefined; // a line that a program printed past the test log
  }
}

/** @param {GoEvent} event */
function keyOf(event) {
  return `${event.Package ?? event.ImportPath ?? ''}\0${event.Test ?? ''}`;
}
