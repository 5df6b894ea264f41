import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { pino } from 'pino';
import { DiskGuard } from './disk-guard.ts';
import { DiskWatch, type WatchedVm } from './disk-watch.ts';

/** Cluster size of qcow2. */
const CLUSTER_BYTES = 64 << 10;
const HOST_BLOCK_BYTES = 4096;

class StandInVm implements WatchedVm {
  readonly unit: string;
  isPaused = false;
  bytes: number | undefined = 0;
  fails = false;

  constructor(unit: string) {
    this.unit = unit;
  }
  diskBytes = () => this.bytes;
  pause = async () => this.#set(true);
  continue = async () => this.#set(false);

  #set(isPaused: boolean): void {
    if (this.fails) throw new Error('it has just ended');
    this.isPaused = isPaused;
  }
}

/** The thresholds are 800, 200 and 100 MiB. */
function open(t: TestContext, vms: readonly WatchedVm[]) {
  const state = { freeMiB: 1000 };
  const disk = new DiskGuard({ directory: '/data', reserveMiB: 800, freeMiB: () => state.freeMiB });
  const watch = new DiskWatch({ disk, listVms: () => vms, log: pino({ level: 'silent' }) });
  t.after(() => watch.close());
  return { state, watch };
}

test('below the lower threshold a VM that writes is paused; a VM whose file grows by host blocks is not', async (t) => {
  const [writer, idle] = [new StandInVm('writer'), new StandInVm('idle')];
  const { state, watch } = open(t, [writer, idle]);
  state.freeMiB = 300;
  await watch.look();
  state.freeMiB = 99;
  writer.bytes = CLUSTER_BYTES;
  idle.bytes = HOST_BLOCK_BYTES;
  await watch.look();
  assert.deepEqual([writer.isPaused, idle.isPaused], [true, false]);
});

test('between the thresholds nothing changes: a paused VM stays paused', async (t) => {
  const [writer, paused] = [new StandInVm('writer'), new StandInVm('paused')];
  paused.isPaused = true;
  const { state, watch } = open(t, [writer, paused]);
  state.freeMiB = 150;
  await watch.look();
  writer.bytes = CLUSTER_BYTES;
  await watch.look();
  assert.deepEqual([writer.isPaused, paused.isPaused], [false, true]);
  state.freeMiB = 200;
  await watch.look();
  assert.equal(paused.isPaused, false);
});

test('sizes seen before there was room again are forgotten: growth counts from the last shortage', async (t) => {
  const writer = new StandInVm('writer');
  const { state, watch } = open(t, [writer]);
  state.freeMiB = 99;
  await watch.look();
  state.freeMiB = 1000;
  await watch.look();
  writer.bytes = CLUSTER_BYTES;
  state.freeMiB = 99;
  await watch.look();
  assert.equal(writer.isPaused, false);
});

test('a VM that cannot be paused, or whose disk is gone, does not affect the others', async (t) => {
  const [ending, gone, writer] = [new StandInVm('ending'), new StandInVm('gone'), new StandInVm('writer')];
  ending.fails = true;
  const { state, watch } = open(t, [ending, gone, writer]);
  state.freeMiB = 99;
  await watch.look();
  [ending.bytes, gone.bytes, writer.bytes] = [CLUSTER_BYTES, undefined, CLUSTER_BYTES];
  await watch.look();
  assert.equal(writer.isPaused, true);
});

test('a disk that gets low is checked more often', async (t) => {
  const { state, watch } = open(t, []);
  const calmMs = await watch.look();
  state.freeMiB = 799;
  assert.ok((await watch.look()) < calmMs);
});
