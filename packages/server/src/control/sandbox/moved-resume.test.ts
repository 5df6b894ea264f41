/** One control with two runners: a hibernated sandbox resumes at the other one. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import { sql } from 'kysely';
import type { ControlLimits } from '../control-config.ts';
import { prepareHarness, prepareOn, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { JoinedRunner } from '../testing/controls/joined-runner.ts';
import { spawnControl } from '../testing/controls/spawn-control.ts';
import { hibernateStored, readPlace } from '../testing/controls/stored-hibernation.ts';
import type { FakeRunner } from '../testing/fakes/fake-runner.ts';
import { makeMigratedDatabase } from '../testing/test-postgres.ts';
import { verifyLog } from '../testing/verify-log.ts';

const INTERNAL = { internalListen: { host: '127.0.0.1', port: 0 } };

interface Machines extends AsyncDisposable {
  harness: ControlHarness;
  here: FakeRunner;
  joined: JoinedRunner;
  there: FakeRunner;
  /** A sandbox whose VM is there. */
  id: string;
}

async function startMachines(
  limits: Partial<ControlLimits> = {},
  body: Record<string, unknown> = {},
): Promise<Machines> {
  await using stack = new AsyncDisposableStack();
  const harness = stack.use(await prepareHarness({ runnerOutageDeadlineMs: 300, ...limits }));
  await harness.runner.start();
  await harness.startControl(INTERNAL);
  const joined = stack.use(await JoinedRunner.join(harness));
  const [here, there] = [harness.runner, joined.runner];
  share(here, there);
  const id = await createThere(harness, there, body);
  const moved = stack.move();
  return { harness, here, joined, there, id, [Symbol.asyncDispose]: () => moved.disposeAsync() };
}

/** Each fetches what the other has saved, as if it were in the object store. */
function share(here: FakeRunner, there: FakeRunner): void {
  here.captures.objects = there.captures.saved;
  there.captures.objects = here.captures.saved;
}

async function createThere(
  harness: ControlHarness,
  there: FakeRunner,
  body: Record<string, unknown> = {},
): Promise<string> {
  harness.runner.onAdmission = refuse;
  let id = '';
  await waitFor('a sandbox of the joined runner', async () => {
    const made = await harness.call('POST', '/v1/runs', { body: { image: 'node:22-slim', ...body } });
    id = String(made.body.id);
    return made.status === 201;
  });
  harness.runner.onAdmission = () => undefined;
  assert.ok(there.vms.has(id));
  return id;
}

function refuse(): never {
  throw new AppError('capacity', 'no memory');
}

const resume = (harness: ControlHarness, id: string) => harness.call('POST', `/v1/runs/${id}/resume`);

async function setRunner(harness: ControlHarness, id: string, change: object): Promise<void> {
  await using db = harness.openDatabase();
  await db.updateTable('runners').set(change).where('id', '=', id).execute();
}

/** As if the time had passed. */
async function expireLeases(harness: ControlHarness): Promise<void> {
  await using db = harness.openDatabase();
  await db.updateTable('controls').set({ lease_until: 1 }).execute();
}

test('its own runner comes first; a full one makes room for another, which has the sandbox from then on', async () => {
  await using machines = await startMachines();
  const { harness, here, there, id } = machines;
  await hibernateStored(harness, { id });
  assert.equal((await resume(harness, id)).status, 200);
  assert.deepEqual([here.vms.has(id), there.vms.has(id)], [false, true]);
  const capture = await hibernateStored(harness, { id });
  there.captures.onRestore = refuse;
  const resumed = await resume(harness, id);
  assert.deepEqual([resumed.status, resumed.body.status], [200, 'running']);
  assert.deepEqual([here.vms.has(id), there.vms.has(id)], [true, false]);
  const place = await readPlace(harness, id);
  assert.deepEqual([place.runner_id, place.is_resuming], [here.id, false]);
  await waitFor(
    'the removal of the copies',
    () => !there.captures.saved.has(capture) && !here.captures.saved.has(capture),
  );
  here.onExec = (command) => command.exit(7);
  const ran = await harness.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'x' } });
  assert.equal(ran.body.exit_code, 7);
  // An end that the former runner reports late says nothing about the VM here.
  there.endVm(id, 'guest_shutdown');
  there.note(id, { event: 'network.denied', data: {}, ts: new Date().toISOString() } as never);
  await waitFor('the report', () =>
    harness.logLines.some((line) => line.includes('of another one is ignored')),
  );
  await waitFor('the acknowledgement', () => there.acknowledged.length > 0);
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).body.status, 'running');
  assert.equal((await harness.call('DELETE', `/v1/runs/${id}`)).status, 200);
  assert.ok((await verifyLog(harness, id)) > 5);
});

test('when its runner is away it resumes elsewhere, and what that one has left is never started', async () => {
  await using machines = await startMachines();
  const { harness, here, joined, there, id } = machines;
  const capture = await hibernateStored(harness, { id });
  await joined.leave();
  assert.equal((await resume(harness, id)).status, 200);
  assert.ok(here.vms.has(id));
  await joined.comeBack();
  await waitFor('the removal of the copy', () => !there.captures.saved.has(capture));
  assert.deepEqual([here.vms.has(id), there.vms.has(id)], [true, false]);
});

test('a copy that is only at a runner that is away: the error names the runner, and it resumes once that is back', async () => {
  await using machines = await startMachines();
  const { harness, here, joined, there, id } = machines;
  assert.equal((await harness.call('POST', `/v1/runs/${id}/hibernate`)).status, 200);
  await joined.leave();
  await waitFor('the loss of the connection', () =>
    harness.logLines.some((line) => line.includes('is not connected')),
  );
  const refused = await resume(harness, id);
  assert.deepEqual([refused.status, refused.body.error.code], [503, 'unavailable']);
  assert.match(
    refused.body.error.message,
    new RegExp(`${there.id} does not answer.*only copy.*start that machine`, 'u'),
  );
  assert.equal(here.vms.has(id), false);
  await joined.comeBack();
  await waitFor('the resume', async () => (await resume(harness, id)).status === 200);
  assert.ok(there.vms.has(id));
});

test('a drained runner hibernates, and a request wakes the sandbox at another one', async () => {
  await using machines = await startMachines({}, { auto_hibernate: true });
  const { harness, here, there, id } = machines;
  await setRunner(harness, there.id, { cordoned_at: Date.now(), drain_until: Date.now() + 60_000 });
  await harness.waitForRecord(id, ({ status }) => status === 'hibernated');
  // Not stored yet: it must wake where it is.
  here.onExec = (command) => command.exit(1);
  there.onExec = (command) => command.exit(2);
  const exec = async () => harness.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'x' } });
  assert.equal((await exec()).body.exit_code, 2);
  await hibernateStored(harness, { id });
  here.onAdmission = refuse;
  assert.equal((await exec()).body.exit_code, 2, 'a cordoned runner is better than none');
  here.onAdmission = () => undefined;
  await hibernateStored(harness, { id });
  const [one, two] = await Promise.all([exec(), exec()]);
  assert.deepEqual([one.body.exit_code, two.body.exit_code], [1, 1]);
  assert.deepEqual([here.vms.has(id), there.vms.has(id)], [true, false]);
});

test('a sandbox whose runner is away is destroyed, and the copies are removed', async () => {
  await using machines = await startMachines();
  const { harness, joined, there, id } = machines;
  const capture = await hibernateStored(harness, { id });
  await joined.leave();
  await waitFor('the loss of the connection', () =>
    harness.logLines.some((line) => line.includes('is not connected')),
  );
  assert.equal((await harness.call('DELETE', `/v1/runs/${id}`)).status, 200);
  await joined.comeBack();
  await waitFor('the removal of the copy', () => !there.captures.saved.has(capture));
});

test('while a resume may be under way at a runner, no other one begins it', async () => {
  await using machines = await startMachines({ captureDeadlineMs: 2_000 });
  const { harness, here, joined, there, id } = machines;
  await hibernateStored(harness, { id });
  const begun = Promise.withResolvers<void>();
  const held = Promise.withResolvers<void>();
  there.captures.onRestore = async () => {
    begun.resolve();
    await held.promise;
  };
  const first = resume(harness, id);
  await begun.promise;
  await joined.leave();
  assert.equal((await first).status, 504);
  const second = await resume(harness, id);
  assert.equal(second.status, 503);
  assert.match(second.body.error.message, /no other runner does it before that one is back or revoked/u);
  assert.equal(here.vms.has(id), false);
  await joined.comeBack();
  // The runner is still about to restore it.
  await waitFor('the roster', () => there.requests.includes('GET /roster'));
  assert.equal((await readPlace(harness, id)).is_resuming, true);
  held.resolve();
  await harness.waitForRecord(id, ({ status }) => status === 'running');
  assert.deepEqual([here.vms.has(id), there.vms.has(id)], [false, true]);
});

test('a resume whose record could not be written is not begun at another runner', async () => {
  await using machines = await startMachines();
  const { harness, here, there, id } = machines;
  await hibernateStored(harness, { id });
  await using db = harness.openDatabase();
  there.captures.onRestore = async () => {
    // As by another process: the commit after it conflicts.
    const version = sql<number>`version + 1`;
    await db.updateTable('sandboxes').set({ version }).where('id', '=', id).execute();
  };
  assert.equal((await resume(harness, id)).status, 503);
  assert.deepEqual([here.vms.has(id), there.vms.has(id)], [false, true]);
  await harness.waitForRecord(id, ({ status }) => status === 'running');
  assert.deepEqual([here.vms.has(id), there.vms.has(id)], [false, true]);
  const { runner_id: at, is_resuming: isMarked } = await readPlace(harness, id);
  assert.deepEqual([at, isMarked], [there.id, false]);
});

test('a control that is killed while a sandbox resumes at another runner leaves it running there, or hibernated', async () => {
  for (const isRestored of [true, false]) {
    await using harness = await prepareOn(await makeMigratedDatabase());
    await harness.runner.start();
    const killed = await spawnControl({ ...harness.config, ...INTERNAL });
    harness.spawned = killed;
    await using joined = await JoinedRunner.join(harness);
    const [here, there] = [harness.runner, joined.runner];
    share(here, there);
    const id = await createThere(harness, there);
    await hibernateStored(harness, { id });
    there.captures.onRestore = refuse;
    const begun = Promise.withResolvers<void>();
    const held = Promise.withResolvers<void>();
    here.captures.onRestore = async () => {
      begun.resolve();
      await held.promise;
      if (!isRestored) refuse();
    };
    resume(harness, id).catch(() => undefined);
    await begun.promise;
    await killed.kill();
    harness.spawned = undefined;
    const { runner_id: at, is_resuming: isMarked } = await readPlace(harness, id);
    assert.deepEqual([at, isMarked], [here.id, true]);
    there.captures.reset();
    await expireLeases(harness);
    await harness.startControl(INTERNAL);
    await waitFor('the next owner', () => here.requests.filter((one) => one === 'GET /roster').length > 2);
    held.resolve();
    const left = isRestored ? 'running' : 'hibernated';
    await waitFor('the outcome', async () => {
      const { status, is_resuming } = await readPlace(harness, id);
      return status === left && !is_resuming;
    });
    here.captures.reset();
    if (!isRestored) await waitFor('the resume', async () => (await resume(harness, id)).status === 200);
    assert.equal([here, there].filter(({ vms }) => vms.has(id)).length, 1);
  }
});

test('a control that has another epoch of the runner than SQL resumes nothing there', async () => {
  await using machines = await startMachines();
  const { harness, here, there, id } = machines;
  await hibernateStored(harness, { id });
  await using db = harness.openDatabase();
  // As after a handover of which this control does not know yet.
  const { epoch } = await db
    .updateTable('runners')
    .set((row) => ({ epoch: row('epoch', '+', 1) }))
    .where('id', '=', there.id)
    .returning('epoch')
    .executeTakeFirstOrThrow();
  const refused = await resume(harness, id);
  assert.deepEqual([refused.status, refused.body.error.code], [503, 'unavailable']);
  assert.deepEqual([here.vms.has(id), there.vms.has(id)], [false, false]);
  assert.equal((await readPlace(harness, id)).is_resuming, false);
  await setRunner(harness, there.id, { epoch: epoch - 1 });
  assert.equal((await resume(harness, id)).status, 200);
  assert.ok(there.vms.has(id));
});
