/**
 * A reporter for `node --test` that writes the numbers as one JSON object. Suites (`describe`) are not
 * counted, the tests in them are; a file that dies is reported by Node as a failed test of its name.
 */

/**
 * @param {AsyncIterable<{ type: string, data: { skip?: unknown, todo?: unknown, details?: { type?: string } } }>} source
 */
async function* report(source) {
  const counts = { passed: 0, failed: 0, skipped: 0 };
  for await (const { type, data } of source) {
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    if (data.details?.type === 'suite') continue;
    // Node reports `skip: undefined` for a test that ran, and `true` or a reason for one that did not.
    if (data.skip !== undefined && data.skip !== false) counts.skipped += 1;
    else if (type === 'test:pass') counts.passed += 1;
    else counts.failed += 1;
  }
  yield JSON.stringify(counts);
}

// oxlint-disable-next-line import/no-default-export -- Node loads a reporter by its default export
export default report;
