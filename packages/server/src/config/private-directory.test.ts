import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { ensurePrivateDirectory } from './private-directory.ts';

const uid = process.getuid?.() ?? 0;
const scratch = mkdtempSync(join(tmpdir(), 'paths-'));
after(() => rmSync(scratch, { recursive: true }));

test('a private directory is created for its owner alone, and one of another owner is refused', () => {
  const path = join(scratch, 'run', 'coppice');
  ensurePrivateDirectory('COPPICE_RUN_DIR', path, uid);
  assert.equal(statSync(path).mode & 0o777, 0o700);
  ensurePrivateDirectory('COPPICE_RUN_DIR', path, uid);
  assert.throws(
    () => ensurePrivateDirectory('COPPICE_RUN_DIR', path, uid + 1),
    /^PathError: COPPICE_RUN_DIR: .* belongs to another user/u,
  );
  symlinkSync('/etc', join(scratch, 'link'));
  assert.throws(
    () => ensurePrivateDirectory('COPPICE_RUN_DIR', join(scratch, 'link'), uid),
    /not a directory/u,
  );
  writeFileSync(join(scratch, 'file'), '');
  assert.throws(
    () => ensurePrivateDirectory('COPPICE_RUN_DIR', join(scratch, 'file'), uid),
    /not a directory/u,
  );
});

test('a directory whose parent is in /tmp is checked together with its parent', () => {
  const parent = mkdtempSync('/tmp/coppice-paths-');
  try {
    const path = join(parent, 'coppice');
    assert.throws(() => ensurePrivateDirectory('COPPICE_RUN_DIR', path, uid + 1), /belongs to another user/u);
    assert.ok(!existsSync(path));
  } finally {
    rmSync(parent, { recursive: true });
  }
});
