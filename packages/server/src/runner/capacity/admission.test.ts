import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import { Admission, memoryReserveMiB, type AdmissionOptions } from './admission.ts';

/** 10 GiB of memory less a reserve of 512 MiB, overcommitted 2×; 8 vCPUs; 100 MiB of overhead per VM process. */
function open(more: Partial<AdmissionOptions> = {}): Admission {
  return new Admission({
    hostMemMiB: 10_240,
    cores: 2,
    memOvercommit: 2,
    cpuOvercommit: 4,
    overheadMiB: () => 100,
    availableMiB: () => 8000,
    ...more,
  });
}

const refusal = (message: RegExp) => (error: unknown) =>
  error instanceof AppError && error.code === 'capacity' && message.test(error.message);

test('the memory reserve is a twentieth within bounds, and at most half of a small host', () => {
  assert.deepEqual([100_000, 1000, 600, 20_000].map(memoryReserveMiB), [4096, 500, 300, 1000]);
});

test('memory is reserved up to the overcommit factor less the reserve, including the overhead of each process', () => {
  const admission = open({ cpuOvercommit: 1000 });
  assert.deepEqual(admission.memory, { promised: 0, limit: 19_968 });
  for (let number = 0; number < 18; number += 1) admission.book(`u${number}`, { vcpus: 1, memMiB: 1000 });
  assert.equal(admission.memory.promised, 19_800);
  assert.throws(
    () => admission.book('more', { vcpus: 1, memMiB: 1000 }),
    refusal(/^memory: 1100 MiB needed, 168 of 19968 are unreserved;.*COPPICE_MEM_OVERCOMMIT$/u),
  );
  admission.book('less', { vcpus: 1, memMiB: 68 });
});

test('vCPUs are reserved up to the overcommit factor, and freed when a VM is gone', () => {
  const admission = open();
  admission.book('a', { vcpus: 6, memMiB: 64 });
  assert.throws(
    () => admission.book('b', { vcpus: 3, memMiB: 64 }),
    refusal(/^vcpus: 3 needed, 2 of 8 are unreserved;.*COPPICE_CPU_OVERCOMMIT$/u),
  );
  admission.release('a');
  admission.book('b', { vcpus: 3, memMiB: 64 });
  assert.equal(admission.vcpus.promised, 3);
});

test('a refused VM reserves nothing', () => {
  const admission = open();
  assert.throws(() => admission.book('a', { vcpus: 9, memMiB: 64 }));
  assert.equal(admission.vcpus.promised, 0);
});

test('no VM is started on a machine whose memory is used up, whatever is reserved', () => {
  let availableMiB = 511;
  const admission = open({ availableMiB: () => availableMiB });
  assert.throws(
    () => admission.assertAvailable(),
    refusal(/^memory: this machine has 511 MiB available, 512 must/u),
  );
  assert.throws(() => admission.book('a', { vcpus: 1, memMiB: 64 }), refusal(/511 MiB available/u));
  availableMiB = 512;
  admission.assertAvailable();
});

test('an adopted VM is reserved even beyond the limits, and later VMs are refused', () => {
  const admission = open();
  admission.adopt('old', { vcpus: 20, memMiB: 30_000 });
  assert.deepEqual(admission.vcpus, { promised: 20, limit: 8 });
  assert.throws(() => admission.book('a', { vcpus: 1, memMiB: 64 }), refusal(/0 of 19968 are unreserved/u));
});

test('the pool has no spare room when a quarter is left; sandboxes still fit', () => {
  const admission = open();
  admission.book('a', { vcpus: 5, memMiB: 64 });
  assert.equal(admission.hasRoomToSpare({ vcpus: 1, memMiB: 64 }), true);
  assert.equal(admission.hasRoomToSpare({ vcpus: 2, memMiB: 64 }), false);
  assert.equal(admission.findShortage({ vcpus: 2, memMiB: 64 }), undefined);
  const short = open({ availableMiB: () => 1000 });
  assert.equal(short.hasRoomToSpare({ vcpus: 1, memMiB: 64 }), false);
});

test('the largest VM fits an empty machine and does not exceed its memory', () => {
  assert.deepEqual(open().largest, { vcpus: 8, memMiB: 10_240 });
  const tight = open({ memOvercommit: 0.5 });
  tight.book('largest', tight.largest);
  assert.equal(tight.memory.promised, tight.memory.limit);
});

test('every refusal is short enough for clients to show', () => {
  const admission = open({ availableMiB: () => 100_000 });
  const message = admission.findShortage({ vcpus: 1000, memMiB: 1_000_000 })?.message ?? '';
  assert.ok(message.length > 0 && message.length < 200, message);
});

test('reservations that can give way count as free, and overbook only until their VMs are gone', () => {
  const admission = open();
  admission.book('warm', { vcpus: 4, memMiB: 64 });
  admission.book('other', { vcpus: 4, memMiB: 64 });
  assert.throws(() => admission.book('a', { vcpus: 4, memMiB: 64 }), refusal(/^vcpus/u));
  admission.book('a', { vcpus: 4, memMiB: 64 }, ['warm']);
  assert.throws(() => admission.book('b', { vcpus: 4, memMiB: 64 }, ['warm']), refusal(/^vcpus/u));
  assert.equal(admission.isOverbooked, true);
  admission.release('warm');
  assert.equal(admission.isOverbooked, false);
});

test('a reservation is transferred to another name once, with the VM\u2019s demand at that time', () => {
  const overheadMiB = (accelerator = 'kvm'): number => (accelerator === 'kvm' ? 100 : 200);
  const admission = open({ overheadMiB });
  admission.book('run', { vcpus: 4, memMiB: 64 });
  assert.equal(admission.memory.promised, 164);
  const demand = { vcpus: 4, memMiB: 64, accelerator: 'tcg' } as const;
  assert.equal(admission.handOn('run', 'unit', demand), true);
  assert.equal(admission.handOn('run', 'unit', demand), false);
  assert.equal(admission.memory.promised, 264);
  admission.release('run');
  assert.equal(admission.vcpus.promised, 4);
  admission.release('unit');
  assert.equal(admission.vcpus.promised, 0);
});

test('VMs that keep their accelerator keep its overhead, whatever accelerator new VMs get', () => {
  let present: 'kvm' | 'tcg' = 'tcg';
  const overheadMiB = (accelerator = present): number => (accelerator === 'kvm' ? 100 : 200);
  const admission = open({ overheadMiB });
  admission.book('emulated', { vcpus: 1, memMiB: 64, accelerator: 'tcg' });
  present = 'kvm';
  admission.book('new', { vcpus: 1, memMiB: 64 });
  assert.equal(admission.memory.promised, 264 + 164);
});
