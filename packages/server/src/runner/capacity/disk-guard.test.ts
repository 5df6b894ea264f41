import assert from 'node:assert/strict';
import { tmpdir } from 'node:os';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import { DiskGuard } from './disk-guard.ts';

test('a demand that would use the reserve is refused, with the directory and the setting', () => {
  const guard = new DiskGuard({ directory: '/data', reserveMiB: 100, freeMiB: () => 150 });
  guard.assertRoom(50);
  assert.throws(
    () => guard.assertRoom(51),
    (error) =>
      error instanceof AppError &&
      error.code === 'capacity' &&
      error.message.startsWith(
        'disk: 51 MiB needed, 150 MiB free at /data, 100 must stay free (COPPICE_DISK_RESERVE_MIB);',
      ) &&
      error.message.length < 200,
  );
});

test('the free space is that of the file system of the directory', () => {
  assert.ok(new DiskGuard({ directory: tmpdir(), reserveMiB: 1 }).freeMiB > 0);
});
