import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { StateSaver } from './qemu-state.ts';
import { QmpError, type QmpClient } from './qmp-client.ts';

const DEVICE = '/machine/peripheral-anon/device[2]';
const LISTED = [
  { name: 'virtio-blk', path: '/machine/peripheral-anon/device[0]' },
  { name: 'virtio-serial', path: DEVICE },
];

/** A monitor of a stopped VM, whose devices save the text `devices` and the number of the save. */
class StoppedVm {
  readonly directory: string;
  readonly calls: string[] = [];
  /** Counters of buffers handed over, by queue. */
  readonly used: Record<number, unknown> = { 5: 65_535, 7: 12 };
  devices: unknown = LISTED;
  saves = 0;
  readonly saver: StateSaver;

  constructor(t: TestContext) {
    this.directory = mkdtempSync(join(tmpdir(), 'coppice-state-'));
    t.after(() => rmSync(this.directory, { recursive: true }));
    const execute = async (command: string, parameters: Record<string, unknown> = {}): Promise<unknown> =>
      this.#answer(command, parameters);
    this.saver = new StateSaver({
      qmp: { execute } as unknown as QmpClient,
      socketDirectory: this.directory,
      seenDirectory: '/run',
    });
  }

  get target(): string {
    return join(this.directory, 'target');
  }

  get written(): string {
    return join(this.directory, 'devices');
  }

  save(copyMemory?: () => Promise<void>): Promise<void> {
    const copy = async (): Promise<void> => {
      this.calls.push('memory');
      await copyMemory?.();
    };
    return this.saver.save(this.target, copy);
  }

  #answer(command: string, { path, queue, filename }: Record<string, unknown>): unknown {
    if (command === 'x-query-virtio') return this.devices;
    if (command === 'x-query-virtio-queue-status') {
      assert.equal(path, DEVICE);
      return { 'used-idx': this.used[Number(queue)], 'last-avail-idx': Math.random(), inuse: 1 };
    }
    assert.deepEqual([command, filename], ['xen-save-devices-state', '/run/devices']);
    this.calls.push('devices');
    this.saves += 1;
    writeFileSync(this.written, `devices ${this.saves}`);
    return {};
  }
}

test('devices are saved before the memory, once if nothing is handed over', async (t) => {
  const vm = new StoppedVm(t);
  await vm.save();
  assert.deepEqual(vm.calls, ['devices', 'memory']);
  assert.equal(readFileSync(vm.target, 'utf8'), 'devices 1');
});

test('devices and memory are saved again when output of a port was handed over in between', async (t) => {
  for (const queue of [5, 7]) {
    const vm = new StoppedVm(t);
    await vm.save(async () => {
      if (vm.saves < 3) vm.used[queue] = vm.saves;
    });
    assert.deepEqual(vm.calls, ['devices', 'memory', 'devices', 'memory', 'devices', 'memory']);
    assert.equal(readFileSync(vm.target, 'utf8'), 'devices 3');
  }
});

test('a save that never comes to rest is refused', async (t) => {
  const vm = new StoppedVm(t);
  const saving = vm.save(async () => void (vm.used[5] = vm.saves));
  await assert.rejects(saving, { code: 'unavailable' });
  assert.equal(vm.saves, 10);
});

test('a VM that owns its RAM file has its devices saved once', async (t) => {
  const vm = new StoppedVm(t);
  await vm.saver.save(vm.target);
  assert.deepEqual(vm.calls, ['devices']);
  assert.equal(readFileSync(vm.target, 'utf8'), 'devices 1');
});

test('answers without the device of the ports, or without their counters, are refused', async (t) => {
  for (const nonsense of [[], null, 'text', [{ name: 'virtio-serial' }]]) {
    const vm = new StoppedVm(t);
    vm.devices = nonsense;
    await assert.rejects(vm.save(), QmpError);
  }
  const vm = new StoppedVm(t);
  vm.used[7] = 'many';
  await assert.rejects(vm.save(), QmpError);
});

test('a link in place of the saved state is not followed', async (t) => {
  const vm = new StoppedVm(t);
  writeFileSync(join(vm.directory, 'secret'), 'secret');
  symlinkSync(join(vm.directory, 'secret'), vm.written);
  await assert.rejects(vm.saver.save(vm.target), { code: 'ELOOP' });
});
