/** Disks with two controls on one database: work of the other one is under way, and its runners hold its disks. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import pino from 'pino';
import { newId } from '../../lib/new-id.ts';
import type { RunnerDisks } from '../placement/runner-disks.ts';
import { waitFor } from '../testing/control-harness.ts';
import { insertSandbox } from '../testing/sandbox-row.ts';
import { startTwoLeases, type TwoLeases } from '../testing/controls/two-leases.ts';
import { Detachments } from './detachments.ts';
import { newDiskId } from './disk-ids.ts';
import { DiskSnapshotStore } from './disk-snapshot-store.ts';
import { DiskStore } from './disk-store.ts';
import type { NewDiskRow } from './disk-tables.ts';
import { giveBackLeft } from './held-disk.ts';

const log = pino({ level: 'silent' });

let controls: TwoLeases;
let store: DiskStore;
beforeEach(async () => {
  controls = await startTwoLeases();
  store = new DiskStore(controls.db);
});
afterEach(() => controls[Symbol.asyncDispose]());

async function insert(change: Partial<NewDiskRow>): Promise<string> {
  const { organizationId: organization_id, teamId: team_id } = controls.owner;
  const id = newDiskId();
  const now = Date.now();
  const whole = { id, name: id, organization_id, team_id, size_gb: 1, stored_at: now, created_at: now };
  await store.insert([{ ...whole, status: 'ready', durability: 'local', ...change }]);
  return id;
}

async function insertHolder(runnerId: string, isResuming: boolean): Promise<string> {
  const { organizationId: organization_id, teamId: team_id } = controls.owner;
  const id = newId('run');
  const state = { status: 'hibernated', runner_id: runnerId, is_resuming: isResuming } as const;
  await insertSandbox(controls.db, { id, organization_id, team_id, ...state });
  return id;
}

const listIds = (rows: readonly { id: string }[]): string[] => rows.map(({ id }) => id);

async function findAttachment(id: string): Promise<string | null | undefined> {
  return (await store.findById(id))?.attachment;
}

test('a disk that another control makes, removes or grows is left alone until that control is gone', async () => {
  const { first, second } = controls;
  const making = await insert({ status: 'creating', control_id: first.id });
  const removing = await insert({});
  await store.condemn(removing, ['ready'], { now: Date.now(), control: first.id });
  const growing = await insert({});
  await store.setGrowing(growing, 2, first.id);
  const leading = { id: second.id, isLeading: true };
  assert.deepEqual(await store.listUnsettled(leading), []);
  assert.deepEqual(await store.listGrowing(leading), []);
  assert.deepEqual(listIds(await store.listUnsettled(first)).toSorted(), [making, removing].toSorted());
  await controls.killFirst();
  assert.deepEqual(await store.listUnsettled({ id: second.id, isLeading: false }), [], 'it does not lead');
  assert.deepEqual(listIds(await store.listUnsettled(leading)).toSorted(), [making, removing].toSorted());
  assert.deepEqual(listIds(await store.listGrowing(leading)), [growing]);
});

test('a snapshot of a disk that another control takes is left alone until that control is gone', async () => {
  const snapshots = new DiskSnapshotStore(controls.db);
  const disk_id = await insert({});
  const of = { organization_id: controls.owner.organizationId, disk_id, version: null, size_gb: 1 };
  const row = { ...of, id: 'dsnap1', name: 'a', created_at: Date.now(), control_id: controls.first.id };
  await snapshots.insert({ ...row, status: 'creating' });
  const leading = { id: controls.second.id, isLeading: true };
  assert.deepEqual(await snapshots.listUnsettled(leading), []);
  await controls.killFirst();
  assert.deepEqual(listIds(await snapshots.listUnsettled(leading)), ['dsnap1']);
});

test('a resume that another control has under way keeps its disk; one whose control is gone gives it back', async () => {
  const runner = await controls.addRunner(controls.first);
  const sandbox_id = await insertHolder(runner, true);
  const id = await insert({ sandbox_id, attachment: 'attaching' });
  const failed = await insertHolder(runner, false);
  const left = await insert({ sandbox_id: failed, attachment: 'attaching' });
  await giveBackLeft(controls.db);
  assert.equal(await findAttachment(id), 'attaching');
  assert.equal(await findAttachment(left), 'detaching', 'its resume is over');
  await controls.killFirst();
  await giveBackLeft(controls.db);
  assert.equal(await findAttachment(id), 'detaching');
});

test('a control asks only its own runners whether they still hold a disk', async () => {
  const ofFirst = await insertHolder(await controls.addRunner(controls.first), false);
  const ofSecond = await insertHolder(await controls.addRunner(controls.second), false);
  const held = await insert({ sandbox_id: ofFirst, attachment: 'detaching' });
  const free = await insert({ sandbox_id: ofSecond, attachment: 'detaching' });
  const asked: string[] = [];
  const runner = {
    get: ({ disk }: { disk: string }) => {
      asked.push(disk);
      return Promise.resolve({ version: 1, drained_at: new Date().toISOString(), attachment: null });
    },
  } as unknown as RunnerDisks;
  const runnerOf = () => Promise.resolve(runner);
  const parts = { db: controls.db, runnerOf, control: controls.second.id, maxDelayMs: 100, log };
  await using detachments = new Detachments({ ...parts, onState: () => Promise.resolve() });
  await detachments.load();
  await waitFor('the disk of the own runner is free', async () => (await findAttachment(free)) === null);
  assert.deepEqual(asked, [free]);
  assert.equal(await findAttachment(held), 'detaching');
});

test('a resume waits for a disk that another control has left detaching', async () => {
  const sandboxId = await insertHolder(await controls.addRunner(controls.second), false);
  const id = await insert({ sandbox_id: sandboxId, attachment: 'detaching' });
  const runner = {
    get: () => Promise.resolve({ version: 1, drained_at: new Date().toISOString(), attachment: null }),
  } as unknown as RunnerDisks;
  const runnerOf = () => Promise.resolve(runner);
  const parts = { db: controls.db, runnerOf, control: controls.second.id, maxDelayMs: 100, log };
  await using detachments = new Detachments({ ...parts, onState: () => Promise.resolve() });
  await detachments.wait(sandboxId, 10_000);
  assert.equal(await findAttachment(id), null);
});
