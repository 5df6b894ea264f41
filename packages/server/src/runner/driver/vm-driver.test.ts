import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import { pino } from 'pino';
import { BUILTIN_SERVICES } from '../../lib/credential-services/builtin-services.ts';
import type { VmEnd, VmInfo } from '../../lib/protocol/runner-protocol.ts';
import type { GroupUsage } from '../confinement/cgroup-usage.ts';
import { DeadlineError } from '../../lib/waiting/deadline.ts';
import { encodeCtlFrame } from '../agent-client/ctl-port.ts';
import type { Cpu } from '../vm/cpu.ts';
import { findIdentity, type ProcessIdentity } from '../host/host-process.ts';
import type { WorkspaceDevice } from '../vm/workspace-device.ts';
import type { AgentPort, VmDisk, VmEnding, VmHandle } from '../vm/vmm.ts';
import { OverlayChain } from '../disk/overlay-chain.ts';
import { VmDirectory } from '../disk/vm-directory.ts';
import { TEMPLATE_COUNTERS, VmDriver } from './vm-driver.ts';
import type { RecordChange } from './vm-driver.types.ts';
import { NO_RULES } from './vm-egress.ts';

const NOT_COUNTED: GroupUsage = { cpuMs: undefined, memPeakBytes: undefined };

const info = (): VmInfo => ({
  id: 'run00000000000000000001',
  state: 'creating',
  image: 'coppice/base:1',
  vcpus: 1,
  mem_mib: 256,
  disk_mib: 64,
  timings_ms: {},
});

/** Stands in for a VM behind the interface `VmHandle`; it has no process. */
class StandInVm implements VmHandle {
  identity: ProcessIdentity = { pid: 1, startTicks: 0 };
  /** Holds the agent's sockets. */
  socketDirectory = '/nowhere';
  readonly disk = {} as VmDisk;
  readonly workspace = {} as WorkspaceDevice;
  readonly #ended = Promise.withResolvers<VmEnding>();
  readonly ended = this.#ended.promise;
  readonly calls: string[] = [];

  endBy(reason: VmEnding): void {
    this.#ended.resolve(reason);
  }
  isGone = false;
  async connectAgent(port: AgentPort): Promise<Socket> {
    return connect(join(this.socketDirectory, port));
  }

  usage() {
    return this.isGone ? undefined : { cpuMs: 12.4, memBytes: 8, memPeakBytes: 4096 };
  }
  async resolveCpu(): Promise<Cpu> {
    return {};
  }
  isPaused = false;
  async pause(): Promise<void> {
    this.calls.push('pause');
  }
  async continue(): Promise<void> {
    this.calls.push('continue');
  }
  async stop(): Promise<void> {
    this.calls.push('stop');
  }
  async start(): Promise<void> {
    this.calls.push('start');
  }
  async saveState(): Promise<void> {
    this.calls.push('saveState');
  }
  readBlockTraffic(): Promise<never> {
    throw new Error('not used');
  }

  consoleTail(): Promise<string> {
    return Promise.resolve('');
  }
  async kill(): Promise<void> {
    this.calls.push('kill');
  }
  detach(): void {
    this.calls.push('detach');
  }
}

const PARTS = { counters: TEMPLATE_COUNTERS, egress: NO_RULES, log: pino({ level: 'silent' }) };

function attach(driver: VmDriver, vm: VmHandle): void {
  const directory = new VmDirectory('/nowhere');
  driver.attach(vm, new OverlayChain([0], { disk: vm.disk, directory, uid: 1, sizeMiB: 64, log: PARTS.log }));
}

function newDriver(group: GroupUsage = NOT_COUNTED): { driver: VmDriver; ends: VmEnd[]; released: string[] } {
  const ends: VmEnd[] = [];
  const released: string[] = [];
  const hooks = {
    note: () => undefined,
    recordEnd: (end: VmEnd) => void ends.push(end),
    endEgress: async () => undefined,
    groupUsage: () => group,
    findRollback: () => undefined,
  };
  const driver = new VmDriver('u1', { ...PARTS, info: info(), hooks });
  driver.onRelease(() => {
    released.push(`first, after ${ends.length} end`);
  });
  driver.onRelease(() => {
    released.push('last');
  });
  return { driver, ends, released };
}

test('an end is recorded after the kill and before the releases, which run in reverse order', async () => {
  const { driver, ends, released } = newDriver();
  const vm = new StandInVm();
  attach(driver, vm);
  driver.markRunning();
  const end = await driver.end('destroyed');
  assert.deepEqual(vm.calls, ['kill']);
  assert.deepEqual(ends, [end]);
  assert.deepEqual({ cpu: end.cpu_ms, peak: end.mem_peak_bytes }, { cpu: 12, peak: 4096 });
  assert.deepEqual(released, ['last', 'first, after 1 end']);
});

test('two concurrent ends are one end, with the first reason', async () => {
  const { driver, ends } = newDriver();
  const vm = new StandInVm();
  attach(driver, vm);
  driver.markRunning();
  const [first, second] = await Promise.all([driver.end('destroyed'), driver.end('vmm_lost')]);
  assert.equal(first, second);
  assert.equal(first.reason, 'destroyed');
  assert.equal(ends.length, 1);
});

test('a VM that ends by itself ends with its own reason', async () => {
  const { driver, ends } = newDriver();
  const vm = new StandInVm();
  attach(driver, vm);
  driver.markRunning();
  vm.endBy('guest_panic');
  await driver.end('guest_panic');
  assert.equal(ends[0]?.reason, 'guest_panic');
});

test('a VM counts as gone once its monitor closes, even if its process exists a moment longer', async () => {
  const { driver } = newDriver();
  assert.equal(await driver.hasGone(), false);
  const vm = new StandInVm();
  vm.identity = findIdentity(process.pid)!;
  attach(driver, vm);
  assert.equal(await driver.hasGone(), false);
  const asked = driver.hasGone();
  vm.endBy('vmm_lost');
  assert.equal(await asked, true);
  await driver.end('vmm_lost');
  assert.equal(await driver.hasGone(), true);
});

test('an end requested during a create waits for the current step and makes the next one fail', async () => {
  const { driver, released } = newDriver();
  const step = Promise.withResolvers<undefined>();
  const vm = new StandInVm();
  const creation = (async () => {
    await step.promise;
    attach(driver, vm);
    driver.assertCreating();
  })();
  driver.trackCreation(creation);
  const ending = driver.end('destroyed');
  assert.deepEqual(released, []);
  step.resolve(undefined);
  await assert.rejects(creation, AppError);
  await ending;
  assert.deepEqual(vm.calls, ['kill']);
});

test('an end that could not be recorded is retried, and releases nothing before that', async () => {
  let failures = 1;
  const released: string[] = [];
  const recordEnd = (): void => {
    if (failures-- > 0) throw new Error('no space left');
  };
  const driver = new VmDriver('u1', {
    ...PARTS,
    info: info(),
    hooks: {
      note: () => undefined,
      endEgress: async () => undefined,
      recordEnd,
      groupUsage: () => NOT_COUNTED,
      findRollback: () => undefined,
    },
  });
  driver.onRelease(() => {
    released.push('TAP');
  });
  await assert.rejects(driver.end('destroyed'), /no space left/u);
  assert.deepEqual(released, []);
  await driver.end('destroyed');
  assert.deepEqual(released, ['TAP']);
});

test('a failed release does not prevent the others', async () => {
  const { driver, released } = newDriver();
  driver.onRelease(() => {
    throw new Error('stuck');
  });
  await driver.end('vmm_lost');
  assert.equal(released.length, 2);
});

test('the usage of a VM whose process died is read from its control group', async () => {
  const { driver } = newDriver({ cpuMs: 900.6, memPeakBytes: 1 << 20 });
  const vm = new StandInVm();
  attach(driver, vm);
  driver.markRunning();
  driver.sampleUsage();
  vm.isGone = true;
  const end = await driver.end('vmm_lost');
  assert.deepEqual([end.cpu_ms, end.mem_peak_bytes], [901, 1 << 20]);
});

test('the memory of a live process is its own, without the page cache of its control group', async () => {
  const { driver } = newDriver({ cpuMs: 13, memPeakBytes: 1 << 20 });
  attach(driver, new StandInVm());
  driver.markRunning();
  const end = await driver.end('destroyed');
  assert.deepEqual([end.cpu_ms, end.mem_peak_bytes], [13, 4096]);
});

test('a wait during a create is aborted when its end is requested', async () => {
  const { driver } = newDriver();
  assert.equal(driver.endAsked.aborted, false);
  await driver.end('destroyed');
  assert.ok(driver.endAsked.reason instanceof AppError);
});

test('a failed end is retried automatically, with the same reason and time', async (context) => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  const ends: VmEnd[] = [];
  let failures = 2;
  const recordEnd = (end: VmEnd): void => {
    ends.push(end);
    if (failures-- > 0) throw new Error('no space left');
  };
  const hooks = {
    note: () => undefined,
    recordEnd,
    endEgress: async () => undefined,
    groupUsage: () => NOT_COUNTED,
    findRollback: () => undefined,
  };
  const driver = new VmDriver('u1', { ...PARTS, info: info(), hooks });
  const released = Promise.withResolvers<void>();
  driver.onRelease(() => released.resolve());
  const vm = new StandInVm();
  attach(driver, vm);
  driver.markRunning();
  vm.endBy('guest_panic');
  for (let round = 1; round <= 2; round += 1) {
    while (ends.length < round) await setImmediate();
    await setImmediate();
    context.mock.timers.tick(round * 1000);
  }
  await released.promise;
  assert.equal(ends.length, 3);
  assert.deepEqual(new Set(ends.map(({ reason, ended_at }) => `${reason} ${ended_at}`)).size, 1);
});

test('an end that keeps failing is retried ever less often, with few warnings and one timer', async (context) => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  let attempts = 0;
  let isFull = true;
  const recordEnd = (): void => {
    attempts += 1;
    if (isFull) throw new Error('no space left');
  };
  const hooks = {
    note: () => undefined,
    recordEnd,
    endEgress: async () => undefined,
    findRollback: () => undefined,
    groupUsage: () => NOT_COUNTED,
  };
  const warnings: unknown[] = [];
  const log = pino({ level: 'warn' }, { write: (line) => void warnings.push(JSON.parse(line)) });
  const driver = new VmDriver('u1', { ...PARTS, log, info: info(), hooks });
  attach(driver, new StandInVm());
  driver.markRunning();
  const settle = async (): Promise<void> => {
    for (let turn = 0; turn < 50; turn += 1) await setImmediate();
  };
  await assert.rejects(driver.end('destroyed'), /no space left/u);
  const attemptedAt = [0];
  const SECONDS = 600;
  for (let second = 1; second <= SECONDS; second += 1) {
    const before = attempts;
    context.mock.timers.tick(1000);
    await settle();
    assert.ok(attempts - before <= 1, `${attempts - before} attempts within a second`);
    if (attempts > before) attemptedAt.push(second);
  }
  assert.deepEqual(attemptedAt.slice(0, 8), [0, 1, 3, 7, 15, 31, 61, 91]);
  assert.equal(attemptedAt.length, 6 + Math.floor((SECONDS - 31) / 30));
  const failures = warnings.map((line) => (line as { failures: number }).failures);
  assert.deepEqual(failures, [1, 2, 4, 8, 16]);
  for (let asked = 0; asked < 3; asked += 1) await assert.rejects(driver.end('destroyed'), /no space left/u);
  const before = attempts;
  context.mock.timers.tick(30_000);
  await settle();
  assert.equal(attempts, before + 1);
  isFull = false;
  await driver.end('destroyed');
  context.mock.timers.tick(60_000);
  await settle();
  assert.deepEqual([attempts, driver.phase], [before + 2, 'ended']);
});

test('an end that an earlier process recorded is finished as recorded', async () => {
  const { driver, ends } = newDriver();
  const noted: VmEnd = {
    id: 'run00000000000000000001',
    reason: 'destroyed',
    cpu_ms: 5,
    mem_peak_bytes: 6,
    ended_at: '2026-01-01T00:00:00.000Z',
  };
  assert.deepEqual(await driver.finishEnd(noted), noted);
  assert.deepEqual(ends, [noted]);
});

test('notes are written after the kill and before the end is recorded, also for an unreported VM', async () => {
  for (const isRetired of [false, true]) {
    const order: string[] = [];
    const vm = new StandInVm();
    const hooks = {
      note: () => undefined,
      endEgress: async () => {
        await setImmediate();
        order.push(`notes, after ${vm.calls.join()}`);
      },
      recordEnd: async () => void order.push('end'),
      groupUsage: () => NOT_COUNTED,
      findRollback: () => undefined,
    };
    const driver = new VmDriver('u1', { ...PARTS, info: info(), hooks });
    driver.onRelease(() => void order.push('slot'));
    attach(driver, vm);
    driver.markRunning();
    await (isRetired ? driver.retire() : driver.end('destroyed'));
    assert.deepEqual(order, ['notes, after kill', ...(isRetired ? [] : ['end']), 'slot']);
  }
});

test('egress changes are applied one after another, on disk first and without secrets', async () => {
  const order: string[] = [];
  const { driver } = newDriver();
  const told: RecordChange[] = [];
  const hooks = {
    note: (change: RecordChange) => void told.push(change),
    endEgress: async () => undefined,
    recordEnd: () => undefined,
    groupUsage: () => NOT_COUNTED,
    findRollback: () => undefined,
  };
  const running = new VmDriver('u1', { ...PARTS, info: info(), hooks });
  attach(running, new StandInVm());
  running.markRunning();
  const [service] = BUILTIN_SERVICES;
  const granted = { ...NO_RULES, grants: [{ service: service!, endpoints: null, secret: 'canary-1' }] };
  const first = running.changeEgress(granted, async () => {
    await setImmediate();
    order.push('first');
    throw new Error('no answer');
  });
  const second = running.changeEgress(
    NO_RULES,
    async (former) => void order.push(`after ${former.grants.length}`),
  );
  await assert.rejects(first, /no answer/u);
  await second;
  assert.deepEqual(order, ['first', 'after 1']);
  assert.deepEqual(
    told.map(({ egress }) => egress?.grants.length),
    [1, 0],
  );
  assert.doesNotMatch(JSON.stringify([told, running]), /canary/u);
  await assert.rejects(
    driver.changeEgress(NO_RULES, async () => undefined),
    { code: 'invalid_state' },
  );
});

/** Ports of a guest whose agent answers an opening only when the test says so. */
async function listenAsAgent(
  directory: string,
): Promise<AsyncDisposable & { opened: Promise<Socket>; answer: (generation: number) => Promise<void> }> {
  const sockets: Socket[] = [];
  const opened = Promise.withResolvers<Socket>();
  const servers = ['ctl', 'data'].map((name) =>
    createServer((socket) => {
      sockets.push(socket);
      socket.on('error', () => undefined);
      if (name === 'ctl') socket.once('data', () => opened.resolve(socket));
    }).listen(join(directory, name)),
  );
  await Promise.all(servers.map((server) => once(server, 'listening')));
  return {
    opened: opened.promise,
    answer: async (generation) =>
      void (await opened.promise).write(encodeCtlFrame({ type: 'waiting', generation, protocol: 1 })),
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy();
      await Promise.all(servers.map((server) => once(server.close(), 'close')));
    },
  };
}

test('a caller with a short deadline does not end the opening of a session for callers with a longer one', async (context) => {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-session-'));
  context.after(() => rmSync(directory, { recursive: true }));
  await using agent = await listenAsAgent(directory);
  const { driver } = newDriver();
  const vm = new StandInVm();
  vm.identity = findIdentity(process.pid)!;
  vm.socketDirectory = directory;
  attach(driver, vm);
  const hasty = driver.session(50);
  const patient = driver.session();
  await assert.rejects(hasty, DeadlineError);
  await agent.answer(driver.counters.session);
  const session = await patient;
  assert.equal(await driver.session(50), session);
  driver.detach();
});

test('a hold before the VM is adopted fails, so that it is repeated', async () => {
  const { driver } = newDriver();
  await assert.rejects(driver.hold('the lease is in doubt'), { code: 'unavailable' });
  assert.equal(driver.heldFor, 'the lease is in doubt');
});
