import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { REPOSITORY } from '../setup/paths.mjs';
import { findTestFile } from './chosen-files.mjs';

test('a test file is found by its path from the repository; other paths are refused with a remedy', () => {
  assert.equal(findTestFile('e2e/streams/exec.test.ts'), join(REPOSITORY, 'e2e', 'streams', 'exec.test.ts'));
  assert.equal(findTestFile('scripts/test/chosen-files.test.mjs'), import.meta.filename);
  for (const path of ['e2e/soak.ts', '../other.test.ts', 'README.md'])
    assert.throws(() => findTestFile(path), /that is no test file/u);
  assert.throws(() => findTestFile('e2e/absent.test.ts'), /there is no such file/u);
});
