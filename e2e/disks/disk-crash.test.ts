/** Twenty cycles of synced writes and SIGKILL: `npm run soak -- --disks 1000` does the same at random. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { startWithStore, type DiskService } from '../fixtures/disks/disk-store.ts';
import { CrashingDisk, DISK_CRASH_STEPS, type DiskCrash } from '../fixtures/disks/disk-crash.ts';
import { attempt } from '../fixtures/faults/kill-groups.ts';
import { Holds } from '../fixtures/faults/holds.ts';
import { assertConsistent } from '../fixtures/host/inventory.ts';

const CRASHES: readonly DiskCrash[] = [
  { victim: 'qemu' },
  { victim: 'runner' },
  { victim: 'blocks' },
  { victim: 'server' },
  ...DISK_CRASH_STEPS.flatMap((step): DiskCrash[] => [
    { victim: 'runner', step },
    { victim: 'qemu', step },
  ]),
  { victim: 'blocks', step: 'disk.drain' },
  { victim: 'server', step: 'disk.rebase' },
  { victim: 'all', step: 'disk.drain' },
  { victim: 'qemu' },
  { victim: 'runner' },
  { victim: 'server' },
  { victim: 'blocks' },
  { victim: 'all' },
];

describe('a persistent disk when processes are killed', { concurrency: false }, () => {
  const holds = new Holds();
  let started: DiskService;
  let disk: CrashingDisk;
  before(async () => {
    started = await startWithStore('directory', {
      instance: 14,
      env: { COPPICE_FAULT_DIR: holds.directory },
    });
    await started.disks.create('data');
    disk = new CrashingDisk(started.disks, holds, 'data');
  });
  after(async () => {
    holds.releaseAll();
    await started[Symbol.asyncDispose]();
    holds[Symbol.dispose]();
  });

  for (const crash of CRASHES)
    it(`SIGKILL of ${crash.victim}${crash.step === undefined ? '' : ` at ${crash.step}`}: all synced data is there`, () =>
      disk.crash(crash));

  it('SIGKILL of the runner while a create gives the disk to a guest: the disk is free again, or the sandbox runs', async () => {
    const { disks, service } = started;
    await disk.end();
    await disks.create('other');
    using hold = holds.hold('create.workspace');
    const body = { image: 'coppice/base:1', mem_mib: 256, timeout: 0, disk: 'other' };
    const created = attempt(disks.api.call('POST', '/v1/runs', { body }));
    await hold.reached();
    const killed = service.killRole('runner');
    hold.release();
    await killed;
    const answer = await created;
    if (answer?.status === 201) await disks.destroy(String(answer.body['id']), 'other');
    await disks.untilFree('other');
    const next = await disks.attach('other');
    assert.equal((await disks.sandbox(next)).disk?.recovered, null);
    await disks.run(next, 'echo here > /workspace/file && sync');
    await disks.destroy(next, 'other');
    assert.equal((await disks.delete('other')).status, 204);
  });

  it('nothing is left on the host', async () => {
    await assertConsistent(started.disks.api);
  });
});
