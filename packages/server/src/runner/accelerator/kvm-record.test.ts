import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { hostBootId } from '../vmm/host-process.ts';
import { openKvmRecord } from './kvm-record.ts';

function newPath(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'kvm-record-'));
  t.after(() => rmSync(directory, { recursive: true }));
  return join(directory, 'accelerator.json');
}

test('a finding is read again with the same QEMU, and with no other', (t) => {
  const path = newPath(t);
  assert.equal(openKvmRecord(path, 'a').find(), undefined);
  openKvmRecord(path, 'a').write('unanswered');
  assert.equal(openKvmRecord(path, 'a').find(), 'unanswered');
  openKvmRecord(path, 'a').write('works');
  assert.equal(openKvmRecord(path, 'a').find(), 'works');
  assert.equal(openKvmRecord(path, 'b').find(), undefined);
});

test('a finding from before the host was booted says nothing', (t) => {
  const path = newPath(t);
  openKvmRecord(path, 'a').write('works');
  writeFileSync(path, readFileSync(path, 'utf8').replace(hostBootId(), 'earlier'));
  assert.equal(openKvmRecord(path, 'a').find(), undefined);
});

test('neither a damaged file nor the verdict of an earlier version says anything', (t) => {
  const path = newPath(t);
  const earlier = { accelerator: 'tcg', reason: 'took longer', boot_id: hostBootId(), binding: 'a' };
  for (const text of ['{', '', JSON.stringify(earlier)]) {
    writeFileSync(path, text);
    assert.equal(openKvmRecord(path, 'a').find(), undefined, text);
  }
});
