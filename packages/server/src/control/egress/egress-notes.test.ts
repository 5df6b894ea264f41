/** Notes of the egress process on their way into audit logs, with a control and a runner that stop in between. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { EgressNote } from '../../lib/protocol/egress-protocol.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { TwoControls } from '../testing/controls/two-controls.ts';
import { verifyLog } from '../testing/verify-log.ts';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());

const blocked = (port: number, ts = new Date().toISOString()): EgressNote => ({
  event: 'network.blocked',
  ts,
  data: { domain: 'a.test', port, reason: 'not_allowed', count: 1 },
});

interface Entry {
  event: string;
  ts: string;
  data: { port?: number };
}

async function listEntries(id: string): Promise<Entry[]> {
  const text = await (await harness.fetch('GET', `/v1/runs/${id}/audit`)).text();
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Entry);
}

const listPorts = async (id: string) =>
  (await listEntries(id)).flatMap(({ data }) => (data.port === undefined ? [] : [data.port]));
const acknowledged = () => waitFor('the acknowledgement', () => harness.runner.notes.size === 0);

test('notes are written to the log in order, with the time of the event', async () => {
  const { id } = await harness.create();
  const ts = new Date(Date.now() + 5).toISOString();
  await waitFor('the time', () => Date.now() > Date.parse(ts));
  for (let port = 1; port <= 300; port += 1) harness.runner.note(id, blocked(port, ts));
  const status = { service: 'openai', method: 'POST', path: '/v1/x', status: 200 };
  harness.runner.note(id, { event: 'credential.proxied', ts, data: status });
  await acknowledged();
  assert.deepEqual(
    await listPorts(id),
    Array.from({ length: 300 }, (_, index) => index + 1),
  );
  const last = (await listEntries(id)).at(-1);
  assert.deepEqual([last?.event, last?.ts, last?.data], ['credential.proxied', ts, status]);
  assert.equal(await verifyLog(harness, id), 302);
});

test('a note that the runner sends again is written once', async () => {
  const { id } = await harness.create();
  const { generation, seq } = harness.runner.note(id, blocked(1));
  await acknowledged();
  // As after a crash between commit and acknowledgement.
  const event = { generation, seq, type: 'egress_note' as const, vm_id: id, note: blocked(1) };
  await harness.stopControl();
  harness.runner.notes.set(seq, event);
  harness.runner.note(id, blocked(2));
  await harness.startControl();
  await acknowledged();
  assert.deepEqual(await listPorts(id), [1, 2]);
});

test('notes of a new spool are written despite their low numbers, with a warning', async () => {
  const { id } = await harness.create();
  const other = await harness.create();
  for (let port = 1; port <= 5; port += 1) harness.runner.note(id, blocked(port));
  await acknowledged();
  await harness.runner.stop();
  harness.runner.loseSpool();
  await harness.runner.start();
  for (const port of [11, 12]) harness.runner.note(id, blocked(port));
  harness.runner.note(other.id, blocked(21));
  await acknowledged();
  assert.deepEqual(await listPorts(id), [1, 2, 3, 4, 5, 11, 12]);
  assert.deepEqual(await listPorts(other.id), [21]);
  assert.deepEqual(harness.runner.acknowledged.at(-1), { generation: 'fake-2', seq: 3 });
  const lines = harness.logLines.filter((line) => line.includes("the runner's event spool was lost"));
  assert.deepEqual(
    lines.map((line) => line.includes(id)),
    [true],
  );
});

test('notes from the time when control was down are written when it is back', async () => {
  const { id } = await harness.create();
  await harness.stopControl();
  harness.runner.note(id, blocked(7));
  harness.runner.endVm(id, 'guest_shutdown');
  await harness.startControl();
  await harness.waitForRecord(id, (record) => record.status === 'destroyed');
  const events = (await listEntries(id)).map(({ event }) => event);
  assert.deepEqual(events, ['sandbox.created', 'network.blocked', 'sandbox.destroyed']);
});

test('a destroy waits for earlier notes', async () => {
  const { id } = await harness.create();
  harness.runner.onDelete = (deleted) => {
    for (let port = 1; port <= 50; port += 1) harness.runner.note(deleted, blocked(port));
  };
  try {
    assert.equal((await harness.call('DELETE', `/v1/runs/${id}`)).status, 200);
  } finally {
    harness.runner.onDelete = () => undefined;
  }
  assert.equal((await listPorts(id)).length, 50);
  assert.equal((await listEntries(id)).at(-1)?.event, 'sandbox.destroyed');
});

test('the first entry is that of the create, even if the guest was faster', async () => {
  let made = '';
  harness.runner.onCreate = (id) => {
    made = id;
    harness.runner.note(id, blocked(9));
  };
  const { id } = await harness.create();
  harness.runner.onCreate = () => undefined;
  assert.equal(id, made);
  await acknowledged();
  const events = (await listEntries(id)).map(({ event }) => event);
  assert.deepEqual(events, ['sandbox.created', 'network.blocked']);
});

test('a note after the end, or of an unknown sandbox, is dropped with a line in the log', async () => {
  const { id } = await harness.create();
  await harness.call('DELETE', `/v1/runs/${id}`);
  const count = (await listEntries(id)).length;
  harness.runner.note(id, blocked(1));
  harness.runner.note(`run${'0'.repeat(20)}`, blocked(1));
  await acknowledged();
  assert.equal((await listEntries(id)).length, count);
  const countLines = (text: string) => harness.logLines.filter((line) => line.includes(text)).length;
  assert.equal(countLines('came too late for its audit log'), 1);
  assert.equal(countLines('about a sandbox that it does not have'), 1);
});

test('a note of a runner about a sandbox of another control is acknowledged and not written', async () => {
  await using both = await TwoControls.start();
  const { id } = await both.one.create();
  const own = await both.other.create();
  both.other.runner.note(id, blocked(1));
  both.other.runner.note(own.id, blocked(2));
  await waitFor('the acknowledgement', () => both.other.runner.notes.size === 0);
  assert.equal(await verifyLog(both.one, id), 1);
  assert.equal(await verifyLog(both.other, own.id), 2);
});
