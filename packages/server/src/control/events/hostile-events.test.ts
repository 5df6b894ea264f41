/** Events that guests cause at will, readers whose key or service is taken away, and what a restored backup lacks. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { EventRecord } from '@coppice/contract';
import { sql } from 'kysely';
import { INVITATION, startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { AccountClient } from '../testing/requests/account-client.ts';
import {
  EventsClient,
  isEvent,
  listEvents,
  typesOf,
  waitForEvent,
} from '../testing/requests/events-client.ts';
import { skipIds } from './skip-ids.ts';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());

const list = (query?: string): Promise<EventRecord[]> => listEvents(harness, query);
const waitForType = (type: string, query?: string): Promise<EventRecord> =>
  waitForEvent(harness, type, query);

test('refused connections are one event a second at most, and all are counted', async () => {
  const { id } = await harness.create();
  const rows = 2_000;
  await using db = harness.openDatabase();
  const { organization_id, team_id } = await db
    .selectFrom('sandboxes')
    .select(['organization_id', 'team_id'])
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
  const startedAt = performance.now();
  const values = Array.from({ length: rows }, (_, n) => ({
    organization_id,
    team_id,
    sandbox_id: id,
    type: 'network.blocked' as const,
    at: Date.now(),
    data: JSON.stringify({
      count: 2,
      refusals: [{ domain: `${n % 40}.test`, reason: 'rule', count: 2 }],
      left_out: 0,
    }),
  }));
  for (let n = 0; n < rows; n += 100)
    await db
      .insertInto('pending_events')
      .values(values.slice(n, n + 100))
      .execute();
  const blocked = (): Promise<EventRecord[]> => list(`?run_id=${id}&type=network.blocked`);
  const sum = (events: EventRecord[]): number =>
    events.reduce((total, { data }) => total + Number(data['count']), 0);
  await waitFor('all refusals', async () => sum(await blocked()) === 2 * rows);
  const events = await blocked();
  assert.ok(events.length <= (performance.now() - startedAt) / 1000 + 1, `${events.length} events`);
  for (const { data } of events) {
    const listed = data['refusals'] as { count: number }[];
    assert.ok(listed.length <= 10);
    const counted = listed.reduce((total, { count }) => total + count, 0);
    assert.equal(counted + Number(data['left_out']), data['count']);
  }
});

test('refusals of many sandboxes are numbered as fast as their guests can cause them', async () => {
  const { id } = await harness.create();
  await using db = harness.openDatabase();
  const count = 20_000;
  const startedAt = performance.now();
  await sql`
    INSERT INTO pending_events (organization_id, sandbox_id, type, at, data)
    SELECT organization_id, 'run' || (n % 50), 'network.blocked', 1,
      '{"count":1,"refusals":[{"ip":"192.0.2.1","reason":"rule","count":1}],"left_out":0}'
    FROM sandboxes, generate_series(1, ${count}::integer) AS n WHERE id = ${id}`.execute(db);
  let events: EventRecord[] = [];
  await waitFor('all refusals', async () => {
    events = (await list('?type=network.blocked&limit=500')).filter(({ run_id }) =>
      /^run\d+$/u.test(run_id ?? ''),
    );
    return events.reduce((sum, { data }) => sum + Number(data['count']), 0) === count;
  });
  assert.ok(performance.now() - startedAt < 8_000);
  assert.ok(events.length < 1_000, `${events.length} events`);
});

test('a refusal that cannot be read holds up no other event', async () => {
  const { id } = await harness.create();
  await using db = harness.openDatabase();
  await sql`
    INSERT INTO pending_events (organization_id, sandbox_id, type, at, data)
    SELECT organization_id, id, 'network.blocked', 1, '{"of":"another version"}'
    FROM sandboxes WHERE id = ${id}`.execute(db);
  await harness.call('DELETE', `/v1/runs/${id}`);
  await waitForType('sandbox.destroyed', `&run_id=${id}`);
  await sql`DELETE FROM events WHERE data = '{"of":"another version"}'`.execute(db);
});

test('a stream ends with its key, and says so', async () => {
  const owner = await AccountClient.signUp(harness, { invitation: INVITATION });
  const { key, id } = (await owner.call('POST', `${owner.team}/keys`, { name: 'a key' })).body;
  await using stream = new EventsClient(harness, '', { apiKey: key as string });
  await stream.wait('the position', ({ type }) => type === 'position');
  await owner.call('DELETE', `${owner.team}/keys/${id}`);
  await waitFor('the end of the stream', () => stream.isOver);
  const last = stream.frames.at(-1) as { type: string; error?: { code: string } };
  assert.deepEqual([last.type, last.error?.code], ['error', 'unauthorized']);
});

test('a reader that has seen events which a restored backup lacks learns it, and no other reader does', async () => {
  const { id } = await harness.create();
  const known = await waitForType('sandbox.created', `&run_id=${id}`);
  await using db = harness.openDatabase();
  const last = (await list('?limit=500')).at(-1)!.id;
  await skipIds(db, Date.now());
  const next = await harness.create();
  await waitForType('sandbox.created', `&run_id=${next.id}`);
  const gone = await harness.call('GET', `/v1/events?after=${last + 5}`);
  assert.deepEqual([gone.status, gone.body.error?.code], [410, 'events_lost']);
  const kept = await list(`?after=${known.id}&run_id=${next.id}`);
  assert.deepEqual(typesOf(kept), ['sandbox.created']);
  await using late = new EventsClient(harness, `?after=${last + 5}`);
  await late.wait('the next event', (frame) => isEvent(frame) && frame.run_id === next.id);
  assert.equal(late.frames[0]!.type, 'lost');
  await using other = new EventsClient(harness, `?after=${known.id}`);
  await other.wait('the next event', (frame) => isEvent(frame) && frame.run_id === next.id);
  assert.ok(other.frames.every(({ type }) => type !== 'lost'));
});
