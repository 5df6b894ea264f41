/**
 * @typedef {object} Counts
 * @property {number} passed
 * @property {number} failed
 * @property {number} skipped
 * @property {readonly string[]} failures  a text for each, for people: a line that names it, then the reason if known
 */

/** @type {Counts} */
export const NOTHING = { passed: 0, failed: 0, skipped: 0, failures: [] };
/** @type {Counts} */
export const PASS = { ...NOTHING, passed: 1 };
/** @type {Counts} */
export const SKIP = { ...NOTHING, skipped: 1 };

/**
 * @param {string} what
 * @param {string} [why]
 * @returns {Counts}
 */
export function failure(what, why) {
  return { ...NOTHING, failed: 1, failures: [why === undefined ? what : `${what}\n${why}`] };
}

/**
 * @param {Counts} left
 * @param {Counts} right
 * @returns {Counts}
 */
export function addCounts(left, right) {
  return {
    passed: left.passed + right.passed,
    failed: left.failed + right.failed,
    skipped: left.skipped + right.skipped,
    failures: [...left.failures, ...right.failures],
  };
}

/**
 * Adds a failure if a program exited with an error although none of its tests failed, or if it ran no test at all.
 * @param {Counts} counts
 * @param {number} exitCode
 * @returns {Counts}
 */
export function withExitCode(counts, exitCode) {
  if (exitCode !== 0 && counts.failed === 0)
    return addCounts(counts, failure(`exited with code ${exitCode} although no test failed`));
  const silent = counts.passed + counts.failed + counts.skipped === 0;
  return silent ? addCounts(counts, failure('did not run any test')) : counts;
}
