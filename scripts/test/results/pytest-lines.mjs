/** Counts the tests of `pytest -v`, which prints a line for each. */
import { addCounts, failure, NOTHING, PASS, SKIP } from './counts.mjs';

/** `tests/test_audit.py::test_name[parameters] PASSED   [ 51%]`; parameters may contain spaces. */
const RESULT = /^(?<name>\S+\.py::.+) (?<result>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b.*\[ *\d+%\]$/u;

export class PytestLines {
  /** @type {import('./counts.mjs').Counts} */
  counts = NOTHING;
  #write;

  /** @param {(line: string) => void} write */
  constructor(write) {
    this.#write = write;
  }

  /** @param {string} line */
  accept(line) {
    this.#write(line);
    const { name, result } = RESULT.exec(line)?.groups ?? {};
    if (name === undefined) return;
    if (result === 'PASSED') this.counts = addCounts(this.counts, PASS);
    else if (result === 'SKIPPED') this.counts = addCounts(this.counts, SKIP);
    else this.counts = addCounts(this.counts, failure(`clients/python/${name}`));
  }
}
