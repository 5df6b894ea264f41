import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { after, afterEach, before, beforeEach, mock, test } from 'node:test';
import pino from 'pino';
import type { ProcessUsage } from '../host/host-process.ts';
import type { TapTraffic } from '../network/kernel/tap-traffic.ts';
import type { BlockTraffic } from '../vm/vmm.ts';
import type { MeteredVm } from './metered-vm.ts';
import { VmMeters } from './vm-meters.ts';

const ID = `run${'1'.repeat(20)}`;
const QUERY = { since_ms: 0, step_s: 10 };
const MIB = 2 ** 20;

/** A VM whose usage a test sets. */
class StandInVm implements MeteredVm {
  readonly unit: string;
  readonly info = { vcpus: 2, mem_mib: 512, disk_mib: 1024 };
  isUp = true;
  workspace: MeteredVm['workspace'];
  isSandboxAlive = false;
  overlays: string[] = [];
  usage = { cpuMs: 0, memBytes: 100 * MIB, memPeakBytes: 200 * MIB };
  blocks: BlockTraffic | undefined = { readBytes: 0, writtenBytes: 0 };
  asked = 0;

  constructor(unit: string) {
    this.unit = unit;
  }

  isRetired = (): boolean => this.isSandboxAlive;
  listOverlayPaths = (): string[] => this.overlays;
  sampleUsage = (): ProcessUsage => this.usage;

  readBlockTraffic = async (): Promise<BlockTraffic> => {
    this.asked += 1;
    if (this.blocks === undefined) throw new Error('the VMM does not answer');
    return this.blocks;
  };
}

let directory: string;
let vms: Map<string, StandInVm>;
let traffic: Map<string, TapTraffic>;
let meters: VmMeters;
let clockMs: number;

before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'cop-meters-'));
});
after(async () => {
  await rm(directory, { recursive: true });
});
beforeEach(() => {
  vms = new Map();
  traffic = new Map();
  clockMs = 1_795_000_000_000;
  mock.method(Date, 'now', () => clockMs);
  mock.method(performance, 'now', () => clockMs);
  meters = new VmMeters({
    listVms: () => vms,
    findVm: (id) => vms.get(id),
    readTraffic: () => traffic,
    log: pino({ level: 'silent' }),
  });
});

afterEach(() => {
  meters[Symbol.dispose]();
  mock.restoreAll();
});

function startVm(unit: string): StandInVm {
  const vm = new StandInVm(unit);
  vms.set(ID, vm);
  return vm;
}

async function waitUntil(condition: () => boolean): Promise<void> {
  for (let turn = 0; !condition(); turn += 1) {
    assert.ok(turn < 100, 'waited for 100 turns of the event loop');
    await nextTurn();
  }
}

async function sampleAfter(seconds: number): Promise<void> {
  clockMs += seconds * 1000;
  await meters.sample();
}

test('the usage of a VM is read at once, before its first sample', async () => {
  const vm = startVm('u1');
  const path = join(directory, 'overlay');
  await writeFile(path, Buffer.alloc(3 * MIB, 1));
  vm.overlays = [path, join(directory, 'gone')];
  vm.usage.cpuMs = 1234.4;
  vm.blocks = { readBytes: 5, writtenBytes: 6 };
  vm.workspace = { record: { size_bytes: 7 }, dirtyBytes: 8 };
  const counts = { fromGuestBytes: 1, toGuestBytes: 2, fromGuestPackets: 3, toGuestPackets: 4 };
  traffic.set('u1', counts);
  const { now, series } = await meters.read(ID, QUERY);
  assert.ok(now !== null && now.disk_bytes >= 3 * MIB && now.disk_bytes < 4 * MIB);
  assert.deepEqual(now, {
    at_ms: clockMs,
    cpu_ms: 1234,
    cpu_utilization: null,
    mem_bytes: 100 * MIB,
    mem_mib: 512,
    disk_bytes: now.disk_bytes,
    disk_mib: 1024,
    read_bytes: 5,
    written_bytes: 6,
    workspace: { size_bytes: 7, dirty_bytes: 8 },
    network: { received_bytes: 2, sent_bytes: 1, received_packets: 4, sent_packets: 3 },
  });
  assert.deepEqual(series, []);
});

test('a VM without a network or a disk has null for them, not 0', async () => {
  startVm('u1');
  const { now } = await meters.read(ID, QUERY);
  assert.deepEqual([now?.network, now?.workspace], [null, null]);
});

test('the utilization now is that since a sample of some seconds ago', async () => {
  const vm = startVm('u1');
  await meters.sample();
  clockMs += 1000;
  assert.equal((await meters.read(ID, QUERY)).now?.cpu_utilization, null);
  clockMs += 3000;
  vm.usage.cpuMs = 2000;
  assert.equal((await meters.read(ID, QUERY)).now?.cpu_utilization, 0.25);
});

test('the VMM of an idle VM is asked once a minute, that of a busy one at each sample', async () => {
  const vm = startVm('u1');
  await meters.sample();
  for (let count = 0; count < 6; count += 1) await sampleAfter(10);
  assert.equal(vm.asked, 2);
  for (let count = 0; count < 3; count += 1) {
    vm.usage.cpuMs += 150;
    await sampleAfter(10);
  }
  assert.equal(vm.asked, 5);
});

test('a VMM that does not answer costs only the numbers that it would give', async () => {
  const vm = startVm('u1');
  vm.blocks = { readBytes: 10, writtenBytes: 20 };
  await meters.sample();
  vm.blocks = undefined;
  vm.usage.cpuMs = 1000;
  await sampleAfter(10);
  const { now, series } = await meters.read(ID, QUERY);
  assert.deepEqual([now?.read_bytes, now?.cpu_ms], [10, 1000]);
  assert.deepEqual([series[0]?.read_bytes, series[0]?.cpu_utilization], [0, 0.05]);
});

test('a VMM that does not answer for long holds up no other VM', async () => {
  const stuck = startVm('u1');
  const answer = Promise.withResolvers<BlockTraffic>();
  stuck.readBlockTraffic = () => answer.promise;
  const round = sampleAfter(10);
  const other = new StandInVm('u2');
  vms.set(`run${'2'.repeat(20)}`, other);
  void sampleAfter(10);
  await waitUntil(() => other.asked === 1);
  answer.resolve({ readBytes: 0, writtenBytes: 0 });
  await round;
});

test('a new VM is sampled between the regular samples, and only once', async () => {
  startVm('u1');
  await meters.sample({ onlyNew: true });
  const second = new StandInVm('u2');
  vms.set(`run${'2'.repeat(20)}`, second);
  clockMs += 1000;
  await meters.sample({ onlyNew: true });
  second.usage.cpuMs = 900;
  await sampleAfter(9);
  const both = await Promise.all([ID, `run${'2'.repeat(20)}`].map((id) => meters.read(id, QUERY)));
  assert.deepEqual(
    both.map(({ series }) => series.map(({ duration_ms }) => duration_ms)),
    [[10_000], [9000]],
  );
  assert.equal(both[1]?.series[0]?.cpu_utilization, 0.05);
});

test('a hibernated sandbox keeps its last hour, and continues it when it is resumed', async () => {
  const first = startVm('u1');
  await meters.sample();
  first.usage.cpuMs = 1000;
  await sampleAfter(10);
  first.isSandboxAlive = true;
  vms.clear();
  await sampleAfter(10);
  const hibernated = await meters.read(ID, QUERY);
  assert.deepEqual([hibernated.now, hibernated.series.length], [null, 1]);
  const second = startVm('u2');
  await sampleAfter(10);
  second.usage.cpuMs = 400;
  await sampleAfter(10);
  const { series } = await meters.read(ID, QUERY);
  assert.deepEqual(
    series.map(({ cpu_utilization }) => cpu_utilization),
    [0.05, 0.02],
  );
});

test('a sandbox that is hibernated for more than an hour has no samples left', async () => {
  startVm('u1').isSandboxAlive = true;
  await meters.sample();
  vms.clear();
  await sampleAfter(3000);
  await meters.read(ID, QUERY);
  await sampleAfter(700);
  await assert.rejects(meters.read(ID, QUERY), { code: 'not_found' });
});

test('a sandbox that has ended has none', async () => {
  startVm('u1');
  await meters.sample();
  vms.clear();
  await sampleAfter(10);
  await assert.rejects(meters.read(ID, QUERY), { code: 'not_found' });
});

test('the samples of at most 1000 hibernated sandboxes are kept, the newest ones', async () => {
  for (let count = 0; count < 1005; count += 1) {
    const vm = new StandInVm(`u${count}`);
    vm.isSandboxAlive = true;
    vms.set(`run${count}`, vm);
  }
  await meters.sample();
  const first = vms.get('run0');
  vms = new Map(first === undefined ? [] : [['run0', first]]);
  await sampleAfter(10);
  vms.clear();
  await sampleAfter(10);
  const known = await Promise.allSettled(
    Array.from({ length: 1005 }, (_, count) => meters.read(`run${count}`, QUERY)),
  );
  assert.equal(known.filter(({ status }) => status === 'fulfilled').length, 1000);
  assert.equal(known[0]?.status, 'fulfilled');
});

test('a VM that does not run yet has no numbers', async () => {
  startVm('u1').isUp = false;
  await sampleAfter(10);
  assert.deepEqual(await meters.read(ID, QUERY), { now: null, series: [] });
});
