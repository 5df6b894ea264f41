/** One control with a runner of its own machine and another one that has joined. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import type { ControlLimits } from '../control-config.ts';
import { prepareHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import type { FakeCommand } from '../testing/fakes/fake-runner.ts';
import { JoinedRunner } from '../testing/controls/joined-runner.ts';

const INTERNAL = { internalListen: { host: '127.0.0.1', port: 0 } };

async function startShared(limits: Partial<ControlLimits> = {}): Promise<ControlHarness> {
  const harness = await prepareHarness(limits);
  await harness.runner.start();
  await harness.startControl(INTERNAL);
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
  return harness;
}

function refuse(): never {
  throw new AppError('capacity', 'no memory');
}

/** Creates a sandbox at the joined runner. */
async function createAt(harness: ControlHarness, { runner }: JoinedRunner): Promise<string> {
  harness.runner.onAdmission = refuse;
  let id = '';
  await waitFor('a sandbox of the joined runner', async () => {
    const made = await harness.call('POST', '/v1/runs', { body: { image: 'node:22-slim' } });
    id = made.body.id;
    return made.status === 201;
  });
  harness.runner.onAdmission = () => undefined;
  assert.ok(runner.vms.has(id));
  return id;
}

const statusOf = async (harness: ControlHarness, id: string): Promise<string> =>
  (await harness.call('GET', `/v1/runs/${id}`)).body.status as string;

async function setRunner(harness: ControlHarness, id: string, change: object): Promise<void> {
  await using db = harness.openDatabase();
  await db.updateTable('runners').set(change).where('id', '=', id).execute();
}

test('a runner that joins gets sandboxes, and each request goes to the runner of its sandbox', async () => {
  await using harness = await startShared();
  await using joined = await JoinedRunner.join(harness);
  const id = await createAt(harness, joined);
  const local = await harness.create();
  joined.runner.onExec = (command) => {
    command.stdout('there');
    command.exit(0);
  };
  harness.runner.onExec = (command) => {
    command.stdout('here');
    command.exit(0);
  };
  const exec = async (one: string) =>
    (await harness.call('POST', `/v1/runs/${one}/exec`, { body: { command: 'x' } })).body.stdout as string;
  assert.deepEqual([await exec(id), await exec(local.id)], ['there', 'here']);
  const snapshot = await harness.call('POST', `/v1/runs/${id}/snapshot`, { body: {} });
  const restored = await harness.call('POST', '/v1/runs/restore', {
    body: { snapshot_id: snapshot.body.id },
  });
  assert.equal(restored.status, 201);
  assert.ok(joined.runner.vms.has(restored.body.id), 'restored where the capture is');
  assert.equal((await harness.call('DELETE', `/v1/runs/${id}`)).status, 200);
  assert.equal(joined.runner.vms.has(id), false);
});

test('the next control adopts the sandboxes of all runners, and removes the VMs that SQL does not know', async () => {
  await using harness = await startShared();
  await using joined = await JoinedRunner.join(harness);
  const id = await createAt(harness, joined);
  await harness.stopControl();
  const strange = `run${'e'.repeat(20)}`;
  const [vm] = joined.runner.vms.values();
  assert.ok(vm);
  joined.runner.vms.set(strange, { ...vm, id: strange });
  await harness.startControl(INTERNAL);
  await waitFor('the strange VM', () => !joined.runner.vms.has(strange));
  assert.ok(joined.runner.vms.has(id));
  assert.equal(await statusOf(harness, id), 'running');
  joined.runner.endVm(id, 'guest_shutdown');
  await waitFor('the end', async () => (await statusOf(harness, id)) === 'destroyed');
});

test('a runner cannot report the end of a sandbox of another one', async () => {
  await using harness = await startShared();
  await using joined = await JoinedRunner.join(harness);
  const { id } = await harness.create();
  await createAt(harness, joined);
  joined.runner.endVm(id, 'guest_panic');
  await waitFor('the report', () => harness.logLines.some((line) => line.includes('of another one')));
  assert.equal(await statusOf(harness, id), 'running');
});

test('a cordoned runner gets no new sandboxes, and a drained one hibernates those that may be', async () => {
  await using harness = await startShared();
  await using joined = await JoinedRunner.join(harness);
  const id = await createAt(harness, joined);
  assert.equal(
    (await harness.call('PATCH', `/v1/runs/${id}`, { body: { auto_hibernate: true } })).status,
    200,
  );
  const other = await createAt(harness, joined);
  await setRunner(harness, joined.runner.id, { cordoned_at: Date.now(), drain_until: Date.now() + 60_000 });
  await waitFor('the hibernation', async () => (await statusOf(harness, id)) === 'hibernated');
  assert.equal(await statusOf(harness, other), 'running');
  harness.runner.onAdmission = refuse;
  const refused = await harness.call('POST', '/v1/runs', { body: { image: 'node:22-slim' } });
  assert.deepEqual([refused.status, refused.body.error.code], [429, 'capacity']);
});

test('the sandboxes of a runner that is revoked, or away for too long, are lost and billed until they were last seen', async () => {
  await using harness = await startShared({ runnerLossMs: 500 });
  await using joined = await JoinedRunner.join(harness);
  const id = await createAt(harness, joined);
  const kept = await harness.create();
  await joined.runner.stop();
  await waitFor('the loss', async () => (await statusOf(harness, id)) === 'failed');
  const record = (await harness.call('GET', `/v1/runs/${id}`)).body;
  assert.equal(record.status_reason, 'vm_lost');
  await joined.runner.start();
  await waitFor('the removal of the VM', () => !joined.runner.vms.has(id));
  const second = await createAt(harness, joined);
  const hibernated = await createAt(harness, joined);
  const { body: snapshot } = await harness.call('POST', `/v1/runs/${hibernated}/snapshot`, { body: {} });
  assert.equal((await harness.call('POST', `/v1/runs/${hibernated}/hibernate`)).status, 200);
  await setRunner(harness, joined.runner.id, { revoked_at: Date.now(), owner: null });
  await waitFor('the loss', async () => (await statusOf(harness, second)) === 'failed');
  assert.equal(await statusOf(harness, kept.id), 'running');
  // What is left belongs to another runner, so that it can be removed.
  await waitFor(
    'the heir',
    async () => (await harness.call('DELETE', `/v1/runs/${hibernated}`)).status === 200,
  );
  assert.equal((await harness.call('DELETE', `/v1/snapshots/${snapshot.id}`)).status, 204);
});

test('a control that is about to end takes no runner, while its open requests end', async () => {
  await using harness = await startShared();
  const { id } = await harness.create();
  const begun = Promise.withResolvers<FakeCommand>();
  harness.runner.onExec = begun.resolve;
  const open = harness.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'x' } });
  const command = await begun.promise;
  const stopped = harness.stopControl();
  await using db = harness.openDatabase();
  const isLeaving = async () =>
    (await db.selectFrom('controls').select('is_leaving').execute())[0]?.is_leaving;
  await waitFor('the note for other controls', async () => (await isLeaving()) === true);
  await using joined = await JoinedRunner.join(harness);
  // Longer than a control takes to find a runner without an owner.
  await delay(2_500);
  const at = db.selectFrom('runners').select('owner').where('id', '=', joined.runner.id);
  assert.deepEqual(await at.execute(), [{ owner: null }]);
  command.exit(3);
  assert.equal((await open).body.exit_code, 3);
  await stopped;
});
