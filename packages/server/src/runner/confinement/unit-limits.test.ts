import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MachineShape } from '../vm/shape.ts';
import { buildLimitFiles } from './cgroup-tree.ts';
import { buildUnitLimits } from './unit-limits.ts';

const MIB = 1024 * 1024;
const shape = (vcpus: number, memMiB: number): MachineShape => ({ accelerator: 'tcg', vcpus, memMiB });

function written(version: 1 | 2, vcpus: number): Record<string, string> {
  const limits = buildUnitLimits({ shape: shape(vcpus, 1024), tmpfsMiB: 0 });
  return Object.fromEntries(buildLimitFiles(version, limits).map(({ file, value }) => [file, value]));
}

test('the memory limit covers the guest, QEMU, the translation cache, page tables and some page cache', () => {
  const { memBytes } = buildUnitLimits({ shape: shape(1, 1024), tmpfsMiB: 0 });
  assert.equal(memBytes, (1024 + 16 + 64 + 128 + 256) * MIB);
});

test('on a tmpfs the disk counts as memory', () => {
  const onDisk = buildUnitLimits({ shape: shape(1, 1024), tmpfsMiB: 0 }).memBytes;
  assert.equal(buildUnitLimits({ shape: shape(1, 1024), tmpfsMiB: 512 }).memBytes - onDisk, 512 * MIB);
});

test('version 2 gets its files, with a quota for all vCPUs and a little for the disks', () => {
  assert.deepEqual(written(2, 2), {
    'memory.max': String(1488 * MIB),
    'cpu.weight': '200',
    'cpu.max': '225000 100000',
    'pids.max': '258',
  });
});

test('version 1 gets the same limits under its own names', () => {
  assert.deepEqual(written(1, 2), {
    'memory.limit_in_bytes': String(1488 * MIB),
    'cpu.shares': '2048',
    'cpu.cfs_period_us': '100000',
    'cpu.cfs_quota_us': '225000',
    'pids.max': '258',
  });
});

test('weights stay in the range that kernels accept', () => {
  assert.equal(written(2, 512)['cpu.weight'], '10000');
  assert.equal(written(1, 512)['cpu.shares'], '262144');
});
