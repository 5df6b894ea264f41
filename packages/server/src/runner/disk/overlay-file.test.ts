import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { runCommand } from '../../lib/process/run-command.ts';
import { makeOverlay } from './overlay-file.ts';

const MIB = 1024 * 1024;

function makeDirectory(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-overlay-'));
  t.after(() => rmSync(directory, { recursive: true }));
  return directory;
}

test('QEMU finds no fault in an empty overlay of any size', async (t) => {
  const directory = makeDirectory(t);
  for (const sizeMiB of [64, 511, 512, 513, 5000, 1_048_576]) {
    const path = join(directory, `${sizeMiB}.qcow2`);
    makeOverlay(path, { sizeMiB, uid: process.getuid?.() ?? 0 });
    assert.equal(statSync(path).mode & 0o777, 0o600);
    await runCommand('qemu-img', ['check', '-q', '-f', 'qcow2', path]);
    const made = JSON.parse(await runCommand('qemu-img', ['info', '--output=json', path])) as Record<
      string,
      unknown
    >;
    assert.deepEqual(
      [made['virtual-size'], made['cluster-size'], made['backing-filename']],
      [sizeMiB * MIB, 65_536, undefined],
    );
    // QEMU does this when a guest writes to the very end of its disk.
    await runCommand('qemu-io', ['-f', 'qcow2', '-c', `write -P 7 ${sizeMiB * MIB - 4096} 4096`, path]);
    await runCommand('qemu-img', ['check', '-q', '-f', 'qcow2', path]);
  }
});

test('an overlay left by an earlier attempt is overwritten', (t) => {
  const path = join(makeDirectory(t), '0.qcow2');
  const uid = process.getuid?.() ?? 0;
  makeOverlay(path, { sizeMiB: 64, uid });
  writeFileSync(path, Buffer.alloc(1 << 20, 1));
  makeOverlay(path, { sizeMiB: 64, uid });
  makeOverlay(`${path}.other`, { sizeMiB: 64, uid });
  assert.deepEqual(readFileSync(path), readFileSync(`${path}.other`));
});
