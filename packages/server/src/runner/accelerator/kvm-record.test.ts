import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { hostBootId } from '../host/host-process.ts';
import { openKvmRecord, type Known } from './kvm-record.ts';

const UNANSWERED: Known = { kvm: 'unanswered' };
const WORKS: Known = {
  kvm: 'works',
  cpus: { host: { vendor: 'GenuineIntel', avx2: true }, chosen: { vendor: 'GenuineIntel', family: 6 } },
};

function newPath(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'kvm-record-'));
  t.after(() => rmSync(directory, { recursive: true }));
  return join(directory, 'accelerator.json');
}

test('a finding is read back with the same QEMU only', (t) => {
  const path = newPath(t);
  assert.equal(openKvmRecord(path, 'a').find(), undefined);
  openKvmRecord(path, 'a').write(UNANSWERED);
  assert.deepEqual(openKvmRecord(path, 'a').find(), UNANSWERED);
  openKvmRecord(path, 'a').write(WORKS);
  assert.deepEqual(openKvmRecord(path, 'a').find(), WORKS);
  assert.equal(openKvmRecord(path, 'b').find(), undefined);
});

test('a finding from an earlier boot of the host is ignored', (t) => {
  const path = newPath(t);
  openKvmRecord(path, 'a').write(WORKS);
  writeFileSync(path, readFileSync(path, 'utf8').replace(hostBootId(), 'earlier'));
  assert.equal(openKvmRecord(path, 'a').find(), undefined);
});

test('a damaged file and findings of earlier versions are ignored', (t) => {
  const path = newPath(t);
  const bound = { boot_id: hostBootId(), binding: 'a' };
  const earlier = [
    { accelerator: 'tcg', reason: 'took longer', ...bound },
    { kvm: 'works', ...bound },
  ];
  for (const text of ['{', '', ...earlier.map((each) => JSON.stringify(each))]) {
    writeFileSync(path, text);
    assert.equal(openKvmRecord(path, 'a').find(), undefined, text);
  }
});
