import assert from 'node:assert/strict';
import { test } from 'node:test';
import pino from 'pino';
import type { VmInfo, VmRollback } from '../../lib/protocol/runner-protocol.ts';
import type { VmRecord } from '../vm/vm-record.ts';
import { OverlayChain } from '../disk/overlay-chain.ts';
import { VmDirectory } from '../disk/vm-directory.ts';
import type { VmHandle } from '../vm/vmm.ts';
import { StepTimer } from '../vm/step-timer.ts';
import type { AssembledVm, Blueprint, VmAssembler } from './vm-assembly.ts';
import { TEMPLATE_COUNTERS, VmDriver } from './vm-driver.ts';
import type { RecordChange } from './vm-driver.types.ts';
import { NO_RULES } from './vm-egress.ts';
import { replaceVm, type Replacement } from './vm-replacement.ts';
import type { Workspaces } from '../workspace/workspaces.ts';
import type { VmRoster } from './vm-roster.ts';

const log = pino({ level: 'silent' });
const rollbackOf = (digit: number): VmRollback => ({
  rollback_id: `roll${String(digit).repeat(20)}`,
  capture_id: `snap${String(digit).repeat(20)}`,
  replaced_usage: { cpu_ms: 5, mem_peak_bytes: 6 },
});
const { replaced_usage: _, ...ASKED } = rollbackOf(1);

const info = (): VmInfo => ({
  id: 'run00000000000000000001',
  state: 'creating',
  image: 'i',
  vcpus: 1,
  mem_mib: 1,
  disk_mib: 1,
  timings_ms: {},
});

/** A running old VM and a new one, over stand-ins that record the order of operations. */
class World {
  readonly order: string[] = [];
  readonly record = { rollbacks: [] } as unknown as VmRecord;
  former: VmRollback[] = [];
  wake: () => Promise<void> = async () => undefined;
  readonly old = this.#newDriver('old');
  readonly driver = this.#newDriver('new');

  constructor() {
    const vm = {
      ended: new Promise(() => undefined),
      stop: async () => void this.order.push('stop'),
      start: async () => void this.order.push('start'),
      usage: () => ({ cpuMs: 12, memBytes: 8, memPeakBytes: 34 }),
    } as unknown as VmHandle;
    const directory = new VmDirectory('/nowhere');
    this.old.attach(vm, new OverlayChain([0], { disk: vm.disk, directory, uid: 1, sizeMiB: 64, log }));
    this.old.markRunning();
  }

  replace(): Promise<VmRollback> {
    const assembled = { driver: this.driver, record: this.record } as AssembledVm;
    const wake = async (): Promise<void> => {
      await this.wake();
      this.order.push(
        `running after ${this.record.rollbacks.map((one) => one.rollback_id.slice(-1)).join()}`,
      );
    };
    const vms = {
      recordOf: () => ({ rollbacks: this.former }),
      enter: (driver: VmDriver) => void this.order.push(`enter ${driver.unit}`),
      markCreated: () => undefined,
    };
    const parts = {
      assembler: { assemble: async () => assembled, wake } as unknown as VmAssembler,
      capacity: {
        reserve: async () => undefined,
        inTurn: <T>(_how: object, start: () => Promise<T>): Promise<T> => start(),
      },
      vms: vms as unknown as VmRoster,
      workspaces: {} as Workspaces,
      giveWay: async () => false,
    };
    const { old, driver } = this;
    const replacement: Replacement = {
      old,
      driver,
      blueprint: {} as Blueprint,
      asked: ASKED,
      timer: new StepTimer('test'),
    };
    return replaceVm(parts, replacement);
  }

  #newDriver(unit: string): VmDriver {
    const note = ({ retired }: RecordChange): void => {
      if (retired === true) this.order.push(`${unit} is not reported`);
    };
    const hooks = {
      note,
      endEgress: async () => undefined,
      recordEnd: () => undefined,
      groupUsage: () => ({ cpuMs: undefined, memPeakBytes: undefined }),
      findRollback: () => undefined,
    };
    return new VmDriver(unit, { info: info(), egress: NO_RULES, counters: TEMPLATE_COUNTERS, hooks, log });
  }
}

test('the record that gives the sandbox to the new VM holds the rollback and the usage of the old VM', async () => {
  const world = new World();
  world.former = [rollbackOf(2), rollbackOf(3)];
  const done = await world.replace();
  assert.deepEqual(done, { ...ASKED, replaced_usage: { cpu_ms: 12, mem_peak_bytes: 34 } });
  assert.deepEqual(world.order, ['stop', 'running after 2,3,1', 'old is not reported', 'enter new']);
  assert.equal(world.record.replaces, 'old');
  assert.deepEqual(world.record.rollbacks.at(-1), done);
});

test('if the new VM does not start, the old one keeps the sandbox', async () => {
  const world = new World();
  world.wake = async () => Promise.reject(new Error('the agent does not answer'));
  await assert.rejects(world.replace(), /the agent does not answer/u);
  assert.deepEqual(world.order, ['stop', 'start']);
  assert.equal(world.old.isRetired, false);
});

test('a record keeps only a bounded number of the newest rollbacks', async () => {
  const world = new World();
  world.former = Array.from({ length: 40 }, () => rollbackOf(2));
  await world.replace();
  assert.equal(world.record.rollbacks.length, 16);
  assert.equal(world.record.rollbacks.at(-1)?.rollback_id, ASKED.rollback_id);
});
