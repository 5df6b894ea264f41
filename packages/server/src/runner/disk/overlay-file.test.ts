import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { runCommand } from '../../lib/process/run-command.ts';
import { makeOverlay, makeWorkspaceOverlay } from './overlay-file.ts';

const MIB = 1024 * 1024;

function makeDirectory(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-overlay-'));
  t.after(() => rmSync(directory, { recursive: true }));
  return directory;
}

interface Found {
  'virtual-size': number;
  'cluster-size': number;
  'backing-filename'?: string;
  'format-specific': { data: { 'extended-l2': boolean; 'refcount-bits': number } };
}

const uid = process.getuid?.() ?? 0;

/** Has QEMU check an empty overlay, and again after a write at the very end of the disk. */
async function checkEmpty(path: string, sizeBytes: number): Promise<Found> {
  assert.equal(statSync(path).mode & 0o777, 0o600);
  await runCommand('qemu-img', ['check', '-q', '-f', 'qcow2', path]);
  const found = JSON.parse(await runCommand('qemu-img', ['info', '--output=json', path])) as Found;
  assert.deepEqual([found['virtual-size'], found['backing-filename']], [sizeBytes, undefined]);
  await runCommand('qemu-io', ['-f', 'qcow2', '-c', `write -P 7 ${sizeBytes - 4096} 4096`, path]);
  await runCommand('qemu-img', ['check', '-q', '-f', 'qcow2', path]);
  return found;
}

test('QEMU finds no fault in an empty overlay of any size', async (t) => {
  const directory = makeDirectory(t);
  for (const sizeMiB of [64, 511, 512, 513, 5000, 1_048_576]) {
    const path = join(directory, `${sizeMiB}.qcow2`);
    makeOverlay(path, { sizeMiB, uid });
    const found = await checkEmpty(path, sizeMiB * MIB);
    assert.deepEqual([found['cluster-size'], found['format-specific'].data['extended-l2']], [65_536, false]);
  }
});

test('QEMU finds no fault in an empty overlay of a persistent disk of any size', async (t) => {
  const directory = makeDirectory(t);
  const sizes = [1 * MIB, 1 * MIB + 4096, 1024 * MIB, 1024 * MIB + 4096, 100 * 1024 * MIB, 2 ** 44];
  for (const sizeBytes of sizes) {
    const path = join(directory, `${sizeBytes}.qcow2`);
    makeWorkspaceOverlay(path, { sizeBytes, uid });
    const found = await checkEmpty(path, sizeBytes);
    assert.deepEqual([found['cluster-size'], found['format-specific'].data['extended-l2']], [131_072, true]);
  }
});

test('a persistent disk that is too large for the L1 table is refused', (t) => {
  const path = join(makeDirectory(t), '0.qcow2');
  assert.throws(() => makeWorkspaceOverlay(path, { sizeBytes: 2 ** 44 + 4096, uid }), /L1 table/u);
});

test('an overlay left by an earlier attempt is overwritten', (t) => {
  const path = join(makeDirectory(t), '0.qcow2');
  makeOverlay(path, { sizeMiB: 64, uid });
  writeFileSync(path, Buffer.alloc(1 << 20, 1));
  makeOverlay(path, { sizeMiB: 64, uid });
  makeOverlay(`${path}.other`, { sizeMiB: 64, uid });
  assert.deepEqual(readFileSync(path), readFileSync(`${path}.other`));
});
