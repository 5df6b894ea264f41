import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import type { VmShape } from '../../lib/protocol/runner-protocol.ts';
import { Admission } from './admission.ts';
import { Capacity } from './capacity.ts';
import { DiskGuard } from './disk-guard.ts';
import { Turns } from './turns.ts';

const VM: VmShape = { vcpus: 1, mem_mib: 256, disk_mib: 64 };
const DEMAND = { vcpus: 1, memMiB: 256 };
const isCapacity = (error: unknown): boolean => error instanceof AppError && error.code === 'capacity';

/** A machine with four vCPUs. */
function open() {
  const state = { freeMiB: 10_000, availableMiB: 8000 };
  const availableMiB = (): number => state.availableMiB;
  const limits = { hostMemMiB: 10_240, cores: 4, memOvercommit: 1, cpuOvercommit: 1 };
  const capacity = new Capacity({
    admission: new Admission({ ...limits, overheadMiB: () => 64, availableMiB }),
    turns: new Turns({ maxRunning: 1, maxWaiting: 1, maxWaitMs: 10_000 }),
    disk: new DiskGuard({ directory: '/data', reserveMiB: 1000, freeMiB: () => state.freeMiB }),
    maxVcpus: 8,
    availableMiB,
  });
  return { capacity, state };
}

test('of many concurrent requests only as many are admitted as fit', () => {
  const { capacity } = open();
  const refused = Array.from({ length: 100 }, (_, number) => {
    try {
      capacity.admit(`run${number}`, VM, []);
      return false;
    } catch (error) {
      assert.ok(isCapacity(error));
      return true;
    }
  });
  assert.equal(refused.filter(Boolean).length, 96);
});

test('a demand that the machine can never meet is an invalid request, named by its field', () => {
  const { capacity } = open();
  const refusal = (more: Partial<VmShape>): string => {
    try {
      capacity.admit('run', { ...VM, ...more }, []);
    } catch (error) {
      if (error instanceof AppError && error.code === 'invalid_request') return error.message;
    }
    return 'none';
  };
  assert.equal(refusal({ vcpus: 5 }), 'vcpus: must be at most 4 on this machine');
  assert.match(refusal({ mem_mib: 10_000 }), /^mem_mib: must be at most 9664 \(MiB\)/u);
});

test('the reservation held for a sandbox is transferred to its VM once', async () => {
  const { capacity } = open();
  capacity.admit('run', VM, []);
  await capacity.reserve('unit', DEMAND, { heldAs: 'run' });
  assert.equal(capacity.status.vcpus.promised, 1);
  capacity.release('unit');
  assert.equal(capacity.status.vcpus.promised, 0);
});

test('a reservation is held exactly as long as its create is running', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { capacity } = open();
  const hold = capacity.admit('run', VM, []);
  t.mock.timers.tick(3_600_000);
  assert.equal(capacity.status.vcpus.promised, 1);
  hold[Symbol.dispose]();
  assert.equal(capacity.status.vcpus.promised, 0);
});

test('disposing a hold does not release a reservation that a VM has taken over', async () => {
  const { capacity } = open();
  const hold = capacity.admit('run', VM, []);
  await capacity.reserve('unit', DEMAND, { heldAs: 'run' });
  hold[Symbol.dispose]();
  assert.equal(capacity.status.vcpus.promised, 1);
});

test('of two holds for one id the later counts, and disposing the earlier does not release it', () => {
  const { capacity } = open();
  const [earlier, later] = [capacity.admit('run', VM, []), capacity.admit('run', { ...VM, vcpus: 3 }, [])];
  assert.equal(capacity.status.vcpus.promised, 3);
  earlier[Symbol.dispose]();
  assert.equal(capacity.status.vcpus.promised, 3);
  later[Symbol.dispose]();
  assert.equal(capacity.status.vcpus.promised, 0);
});

test('a shape is checked against the machine alone, and refused with its path in the request', () => {
  const { capacity } = open();
  assert.deepEqual([capacity.isPossible(VM), capacity.isPossible({ ...VM, vcpus: 5 })], [true, false]);
  assert.throws(
    () => capacity.assertPossible({ ...VM, mem_mib: 10_000 }, 'shapes[1].'),
    /^AppError: shapes\[1\]\.mem_mib: must be at most 9664 \(MiB\)/u,
  );
});

test('a create whose hold is gone reserves anew', async () => {
  const { capacity } = open();
  for (const unit of ['a', 'b', 'c', 'd']) await capacity.reserve(unit, DEMAND, { heldAs: 'unknown' });
  await assert.rejects(capacity.reserve('e', DEMAND, { heldAs: 'unknown' }), isCapacity);
});

test('warm VMs are ended before a create is refused, and no more of them than needed', async () => {
  const { capacity } = open();
  const warm = ['w1', 'w2', 'w3'];
  for (const unit of [...warm, 'sandbox']) await capacity.reserve(unit, DEMAND);
  const giveWay = async (): Promise<boolean> => {
    const unit = warm.shift();
    if (unit !== undefined) capacity.release(unit);
    return unit !== undefined;
  };
  capacity.admit('run', { ...VM, vcpus: 2 }, warm);
  await capacity.reserve('unit', { ...DEMAND, vcpus: 2 }, { heldAs: 'run', giveWay });
  assert.deepEqual(warm, ['w3']);
  await capacity.reserve('next', DEMAND, { giveWay });
  await assert.rejects(capacity.reserve('last', DEMAND, { giveWay }), isCapacity);
});

test('memory and disk are checked again when the start slot is free', async () => {
  const { capacity, state } = open();
  const start = async (): Promise<string> => 'started';
  assert.equal(await capacity.inTurn({ diskMiB: 9000 }, start), 'started');
  await assert.rejects(capacity.inTurn({ diskMiB: 9001 }, start), isCapacity);
  state.availableMiB = 100;
  await assert.rejects(capacity.inTurn({ diskMiB: 0 }, start), isCapacity);
});

test('on a full disk nothing is admitted and nothing is kept warm', () => {
  const { capacity, state } = open();
  assert.equal(capacity.hasRoomToSpare(DEMAND), true);
  state.freeMiB = 999;
  assert.equal(capacity.hasRoomToSpare(DEMAND), false);
  assert.throws(() => capacity.admit('run', VM, []), isCapacity);
});
