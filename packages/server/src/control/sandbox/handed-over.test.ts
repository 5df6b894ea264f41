/** Two controls, each with a runner of its own machine: a hibernated sandbox of one resumes at the other. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { waitFor } from '../testing/control-harness.ts';
import { hibernateStored, readPlace } from '../testing/controls/stored-hibernation.ts';
import { TwoControls } from '../testing/controls/two-controls.ts';
import { SocketClient } from '../testing/requests/socket-client.ts';
import { verifyLog } from '../testing/verify-log.ts';

let both: TwoControls;
before(async () => {
  both = await TwoControls.start({ runnerOutageDeadlineMs: 300 });
  both.one.runner.captures.objects = both.other.runner.captures.saved;
  both.other.runner.captures.objects = both.one.runner.captures.saved;
});
after(() => both[Symbol.asyncDispose]());
beforeEach(() => {
  for (const { runner } of [both.one, both.other]) {
    runner.captures.reset();
    runner.onAdmission = () => undefined;
  }
});

function refuse(): never {
  throw new AppError('capacity', 'no memory');
}

/** Creates a sandbox of the first control, which is hibernated while its runner is full. */
async function createHibernated(): Promise<string> {
  const { id } = await both.one.create({ auto_hibernate: true });
  await hibernateStored(both.one, { id });
  both.one.runner.captures.onRestore = refuse;
  return id;
}

/** Returns whether the sandbox has a VM at each of the runners. */
const vmsOf = (id: string): boolean[] => [both.one, both.other].map(({ runner }) => runner.vms.has(id));

test('a control without room gives the sandbox to another one, and passes the request on', async () => {
  const id = await createHibernated();
  const resumed = await both.one.call('POST', `/v1/runs/${id}/resume`);
  assert.deepEqual([resumed.status, resumed.body.status], [200, 'running']);
  assert.deepEqual(vmsOf(id), [false, true]);
  assert.equal((await readPlace(both.one, id)).runner_id, both.other.runner.id);
  both.other.runner.onExec = (command) => command.exit(4);
  for (const harness of [both.one, both.other]) {
    const ran = await harness.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'x' } });
    assert.equal(ran.body.exit_code, 4);
  }
  assert.ok((await verifyLog(both.one, id)) > 5);
  assert.equal((await both.one.call('DELETE', `/v1/runs/${id}`)).status, 200);
  assert.deepEqual(vmsOf(id), [false, false]);
});

test('it comes back to the control that was asked first, with the body of the request', async () => {
  const id = await createHibernated();
  both.other.runner.onExec = (command) => {
    command.stdout(command.head.command);
    command.exit(0);
  };
  const ran = await both.other.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'the body' } });
  assert.deepEqual([ran.status, ran.body.stdout], [200, 'the body']);
  assert.deepEqual(vmsOf(id), [false, true]);
});

test('of many requests through both controls, one resumes it', async () => {
  const id = await createHibernated();
  let starts = 0;
  both.other.runner.captures.onRestore = () => void (starts += 1);
  both.other.runner.onExec = (command) => command.exit(0);
  const asked = [both.one, both.other, both.one, both.other].map((harness) =>
    harness.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'x' } }),
  );
  assert.deepEqual(
    (await Promise.all(asked)).map(({ status }) => status),
    [200, 200, 200, 200],
  );
  assert.equal(starts, 1);
  assert.deepEqual(vmsOf(id), [false, true]);
});

test('a WebSocket wakes it at the other control', async () => {
  const id = await createHibernated();
  both.other.runner.startsAtHead = true;
  both.other.runner.onExec = (command) => command.exit(0);
  const client = new SocketClient(both.one, `/v1/runs/${id}/exec/ws`);
  await client.send({ command: 'x' });
  assert.equal((await client.closed).code, 1000);
  assert.deepEqual(vmsOf(id), [false, true]);
  both.other.runner.startsAtHead = false;
});

test('a control adopts what it was given, also if no request follows', async () => {
  const id = await createHibernated();
  await using db = both.one.openDatabase();
  const { version } = await db
    .selectFrom('sandboxes')
    .select('version')
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
  const change = { runner_id: both.other.runner.id, version: version + 1 };
  await db.updateTable('sandboxes').set(change).where('id', '=', id).execute();
  await waitFor('the adoption', () =>
    both.other.logLines.some((line) => line.includes(id) && line.includes('taken over')),
  );
  // The former one learns it with its next change, and passes the request on.
  assert.equal((await both.one.call('POST', `/v1/runs/${id}/resume`)).status, 200);
  assert.deepEqual(vmsOf(id), [false, true]);
});

test('when the machine of a control is gone, another one takes its stored sandboxes', async () => {
  const id = await createHibernated();
  const unstored = await both.one.create();
  assert.equal((await both.one.call('POST', `/v1/runs/${unstored.id}/hibernate`)).status, 200);
  await both.one.stopControl();
  await both.one.runner.stop();
  const resumed = await both.other.call('POST', `/v1/runs/${id}/resume`);
  assert.equal(resumed.status, 200);
  assert.deepEqual(vmsOf(id), [false, true]);
  const captures = both.one.runner.captures.saved;
  await both.one.runner.start();
  await both.one.startControl({ internalListen: { host: '127.0.0.1', port: 0 } });
  await waitFor('the removal of the copy', () => [...captures.values()].every(({ vm_id }) => vm_id !== id));
  both.one.runner.captures.reset();
  await waitFor(
    'the resume',
    async () => (await both.other.call('POST', `/v1/runs/${unstored.id}/resume`)).status === 200,
  );
  assert.deepEqual(vmsOf(unstored.id), [true, false]);
  assert.deepEqual(vmsOf(id), [false, true]);
});
