/**
 * Runs test files in one process, one after the other. COPPICE_TEST_FILES holds their paths as JSON. Each file is a
 * suite of its own, so that its hooks apply to it alone. All modules are loaded before the first test runs, so no file
 * may start a measurement or a time limit while it is loaded.
 */
import { relative } from 'node:path';
import { describe } from 'node:test';
import { pathToFileURL } from 'node:url';
import { REPOSITORY } from '../../setup/paths.mjs';

// Otherwise processes that tests fork would inherit the flags of the test run and write into its record.
process.execArgv.length = 0;

/** @type {string[]} */
const files = JSON.parse(process.env['COPPICE_TEST_FILES'] ?? '[]');
for (const file of files)
  void describe(relative(REPOSITORY, file), async () => {
    await import(pathToFileURL(file).href);
  });
