import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HostRecord } from '../../../../contract/src/accounts/operator.ts';
import { sumRunners, type Measured } from './sum-runners.ts';

const MEASURED: Measured = {
  accelerator: 'kvm',
  confinement: 'full',
  versions: { qemu: '10.0.0', kernel: '6.12.1', agent: 'a' },
  sandboxes: { running: 2 },
  paused: 1,
  vcpus: { promised: 2, limit: 8 },
  mem_mib: { promised: 512, limit: 4096 },
  mem_available_mib: 3000,
  disk_free_mib: 100,
  disk_reserve_mib: 10,
  starts: { running: 1, waiting: 0 },
  warm_pool: { size: 1, limit: 2, hits: 3, misses: 4 },
  disks: { attached: 1, detaching: 0, waiting: 0, dirty_bytes: 5 },
};

const runner = (measured: Measured | null): HostRecord['runners'][number] => ({
  id: 'runner-1',
  state: 'connected',
  cordoned: false,
  draining: false,
  region: 'us',
  address: null,
  control: 'ctl1',
  heard_seconds_ago: 1,
  measured,
});

test('one runner is shown as it is, and one that does not answer does not count', () => {
  assert.equal(sumRunners([]), undefined);
  assert.equal(sumRunners([runner(null)]), undefined);
  const away = { ...runner(MEASURED), state: 'away' as const };
  assert.deepEqual(sumRunners([runner(null), runner(MEASURED), away]), MEASURED);
});

test('numbers are added up at all depths, and versions that differ are listed once', () => {
  const newer = { ...MEASURED, accelerator: 'tcg' as const, sandboxes: { ending: 1, running: 1 } };
  const sum = sumRunners([
    runner(MEASURED),
    runner({ ...newer, versions: { ...MEASURED.versions, qemu: '10.1.0' } }),
    runner(MEASURED),
  ]);
  assert.deepEqual(sum, {
    accelerator: 'tcg',
    confinement: 'full',
    versions: { qemu: '10.0.0, 10.1.0', kernel: '6.12.1', agent: 'a' },
    sandboxes: { running: 5, ending: 1 },
    paused: 3,
    vcpus: { promised: 6, limit: 24 },
    mem_mib: { promised: 1536, limit: 12_288 },
    mem_available_mib: 9000,
    disk_free_mib: 300,
    disk_reserve_mib: 30,
    starts: { running: 3, waiting: 0 },
    warm_pool: { size: 3, limit: 6, hits: 9, misses: 12 },
    disks: { attached: 3, detaching: 0, waiting: 0, dirty_bytes: 15 },
  });
});
