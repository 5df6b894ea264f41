import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { REPOSITORY } from '../setup/paths.mjs';
import { findStressedFile } from './stress.mjs';

test('a test file is found from the repository, and what is none is refused with where they are', () => {
  assert.equal(findStressedFile('e2e/exec.test.ts'), join(REPOSITORY, 'e2e', 'exec.test.ts'));
  assert.equal(findStressedFile('scripts/test/stress.test.mjs'), import.meta.filename);
  for (const path of ['e2e/soak.ts', '../other.test.ts', 'README.md'])
    assert.throws(() => findStressedFile(path), /that is no test file/u);
});
