import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import type { RollbackVm, VmRollback } from '../../lib/protocol/runner-protocol.ts';
import type { CaptureManifest } from '../snapshot/capture-manifest.ts';
import type { CaptureFiles } from '../snapshot/capture-store.ts';
import { MACHINE_VERSION } from '../vm/shape.ts';
import type { VmRecord } from '../vm/vm-record.ts';
import type { CaptureBindings } from './capture-bindings.ts';
import type { VmDriver } from './vm-driver.ts';
import { VmRollbacks } from './vm-rollbacks.ts';

const VM = 'run00000000000000000001';
const SHAPE = { accelerator: 'tcg', vcpus: 1, memMiB: 256, diskMiB: 64 } as const;
const USAGE = { cpu_ms: 7, mem_peak_bytes: 8 };
const idOf = (prefix: string, digit: number): string => `${prefix}${String(digit).repeat(20)}`;
const ask = (rollback: number, capture: number): RollbackVm => ({
  rollback_id: idOf('roll', rollback),
  capture_id: idOf('snap', capture),
});

const BINDINGS = {
  machines: { find: () => ({ key: 'm' }) },
  accelerators: { findRefusal: (accelerator: string) => (accelerator === 'tcg' ? undefined : 'no KVM') },
  hasNetwork: false,
  tscKhz: 1,
} as unknown as CaptureBindings;

/** A VM and its captures behind the interfaces of VmRollbacks. `replace` calls `onReplace` and records the rollback. */
class World {
  readonly done: VmRollback[] = [];
  readonly captures = new Set([1, 2, 3].map((digit) => idOf('snap', digit)));
  onReplace: () => Promise<void> = async () => undefined;
  shape: CaptureManifest['shape'] = SHAPE;
  rollbacks = this.start();

  /** Starts another runner process with the same disk. */
  start(): VmRollbacks {
    const driver = { info: { id: VM } } as VmDriver;
    return new VmRollbacks({
      fleet: {
        vms: {
          getRunning: () => driver,
          recordOf: () => ({ rollbacks: this.done, shape: SHAPE }) as unknown as VmRecord,
        },
        replace: async (_old, _blueprint, asked) => {
          await this.onReplace();
          const rollback = { ...asked, replaced_usage: USAGE };
          this.done.push(rollback);
          return rollback;
        },
      },
      objects: {
        use: async ({ id }, work) => {
          if (!this.captures.has(id)) throw new AppError('not_found', `there is no snapshot ${id}`);
          const files = { directory: {}, statePath: '', overlays: [] } as unknown as CaptureFiles;
          const manifest = {
            shape: this.shape,
            machine_version: MACHINE_VERSION,
            has_network: false,
            tsc_khz: 1,
          } as unknown as CaptureManifest;
          return work(files, manifest);
        },
      },
      bindings: BINDINGS,
    });
  }

  get captureIds(): string[] {
    return this.done.map(({ capture_id }) => capture_id);
  }
}

test('a repeated rollback is answered and not done again, also by the next process and without its capture', async () => {
  const world = new World();
  const first = await world.rollbacks.rollBack(VM, ask(1, 1));
  assert.deepEqual(first, { ...ask(1, 1), replaced_usage: USAGE });
  world.captures.clear();
  assert.deepEqual(await world.rollbacks.rollBack(VM, ask(1, 1)), first);
  assert.deepEqual(await world.start().rollBack(VM, ask(1, 1)), first);
  assert.equal(world.done.length, 1);
});

test('a repeated request joins a running rollback; another rollback is refused', async () => {
  const world = new World();
  const gate = Promise.withResolvers<void>();
  world.onReplace = () => gate.promise;
  const first = world.rollbacks.rollBack(VM, ask(1, 1));
  const again = world.rollbacks.rollBack(VM, ask(1, 1));
  await assert.rejects(world.rollbacks.rollBack(VM, ask(2, 2)), /roll1{20} of this VM is under way/u);
  gate.resolve();
  assert.equal(await first, await again);
  assert.deepEqual(world.captureIds, [idOf('snap', 1)]);
  await world.rollbacks.rollBack(VM, ask(2, 2));
  assert.deepEqual(world.captureIds, [idOf('snap', 1), idOf('snap', 2)]);
});

test('a rollback done before the last one is refused and not done again', async () => {
  const world = new World();
  await world.rollbacks.rollBack(VM, ask(1, 1));
  await world.rollbacks.rollBack(VM, ask(2, 2));
  await assert.rejects(world.rollbacks.rollBack(VM, ask(1, 1)), (error: AppError) => {
    assert.equal(error.code, 'invalid_state');
    assert.match(error.message, /not done again/u);
    return true;
  });
  assert.equal(world.done.length, 2);
});

test('an id means one rollback: with another capture it is refused, during the rollback and after it', async () => {
  const world = new World();
  const gate = Promise.withResolvers<void>();
  world.onReplace = () => gate.promise;
  const first = world.rollbacks.rollBack(VM, ask(1, 1));
  await assert.rejects(world.rollbacks.rollBack(VM, ask(1, 2)), { code: 'invalid_request' });
  gate.resolve();
  await first;
  await assert.rejects(world.rollbacks.rollBack(VM, ask(1, 2)), { code: 'invalid_request' });
  assert.deepEqual(world.captureIds, [idOf('snap', 1)]);
});

test('a repeated request retries a failed rollback', async () => {
  const world = new World();
  world.onReplace = () => {
    world.onReplace = async () => undefined;
    throw new AppError('capacity', 'no room');
  };
  await assert.rejects(world.rollbacks.rollBack(VM, ask(1, 1)), { code: 'capacity' });
  assert.deepEqual(world.done, []);
  await world.rollbacks.rollBack(VM, ask(1, 1));
  assert.equal(world.done.length, 1);
});

test('a capture of another size, or a missing one, changes nothing', async () => {
  const world = new World();
  world.shape = { ...SHAPE, diskMiB: 128 };
  await assert.rejects(world.rollbacks.rollBack(VM, ask(1, 1)), /another size/u);
  await assert.rejects(world.rollbacks.rollBack(VM, ask(2, 9)), { code: 'not_found' });
  assert.deepEqual(world.done, []);
});
