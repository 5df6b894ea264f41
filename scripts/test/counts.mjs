/**
 * @typedef {object} Counts
 * @property {number} passed
 * @property {number} failed
 * @property {number} skipped
 * @property {readonly string[]} failures  what failed, for people: a line each, and below it why where that is known
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
 * A program may end badly although no test of it failed, and may end well without having run one.
 * @param {Counts} counts
 * @param {number} exitCode
 * @returns {Counts}
 */
export function withExitCode(counts, exitCode) {
  if (exitCode !== 0 && counts.failed === 0)
    return addCounts(counts, failure(`ended with exit code ${exitCode} although no test failed`));
  const silent = counts.passed + counts.failed + counts.skipped === 0;
  return silent ? addCounts(counts, failure('ran not a single test')) : counts;
}
