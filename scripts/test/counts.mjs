/**
 * @typedef {object} Counts
 * @property {number} passed
 * @property {number} failed
 * @property {number} skipped
 */

/** @type {Counts} */
export const NOTHING = { passed: 0, failed: 0, skipped: 0 };

/**
 * A suite that could not be run, or that says nothing, is a failure.
 * @type {Counts}
 */
export const CRASHED = { passed: 0, failed: 1, skipped: 0 };

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
  };
}

/**
 * A program may end badly although no test of it failed, and may end well without having run one.
 * @param {Counts} counts
 * @param {number} exitCode
 * @returns {Counts}
 */
export function withExitCode(counts, exitCode) {
  const silent = counts.passed + counts.failed + counts.skipped === 0;
  return silent || (exitCode !== 0 && counts.failed === 0) ? addCounts(counts, CRASHED) : counts;
}
