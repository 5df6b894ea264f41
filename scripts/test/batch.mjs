/**
 * Test files in one process, one after the other, each in a suite of its own, so that its hooks are its own, too. Their
 * paths are in COPPICE_TEST_FILES, as JSON. All modules are loaded first: what a file measures or limits must not begin
 * when it is loaded.
 */
import { relative } from 'node:path';
import { describe } from 'node:test';
import { pathToFileURL } from 'node:url';
import { REPOSITORY } from '../setup/paths.mjs';

// What tests fork would inherit the flags of a test run, and write into its record.
process.execArgv.length = 0;

/** @type {string[]} */
const files = JSON.parse(process.env['COPPICE_TEST_FILES'] ?? '[]');
for (const file of files)
  void describe(relative(REPOSITORY, file), async () => {
    await import(pathToFileURL(file).href);
  });
