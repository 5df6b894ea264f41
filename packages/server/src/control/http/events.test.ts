/** Events of an organization, as pages and as streams, through the real API. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { EventRecord } from '@coppice/contract';
import { sql } from 'kysely';
import { EventStore } from '../events/event-store.ts';
import { AccountClient } from '../testing/requests/account-client.ts';
import {
  EventsClient,
  isEvent,
  listEvents,
  typesOf,
  waitForEvent,
} from '../testing/requests/events-client.ts';
import {
  INVITATION,
  prepareHarness,
  startHarness,
  waitFor,
  type ControlHarness,
} from '../testing/control-harness.ts';

/** The delivery of an event takes a few milliseconds; without a wake it would take half a second on average. */
const SOON_MS = 250;

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());

const list = (query?: string, apiKey?: string): Promise<EventRecord[]> =>
  listEvents(harness, query, apiKey === undefined ? {} : { apiKey });
const waitForType = (type: string, query?: string): Promise<EventRecord> =>
  waitForEvent(harness, type, query);

test('the life of a sandbox is a sequence of events with its labels', async () => {
  const { id, team_id } = await harness.create({ labels: { job: 'nightly' } });
  const snapshot = (await harness.call('POST', `/v1/runs/${id}/snapshot`)).body;
  const [child] = (await harness.call('POST', `/v1/runs/${id}/fork`)).body;
  assert.equal((await harness.call('POST', `/v1/runs/${id}/hibernate`)).status, 200);
  assert.equal((await harness.call('POST', `/v1/runs/${id}/resume`)).status, 200);
  const rollback = await harness.call('POST', `/v1/runs/${id}/rollback`, {
    body: { snapshot_id: snapshot.id },
  });
  assert.equal(rollback.status, 200);
  assert.equal((await harness.call('DELETE', `/v1/snapshots/${snapshot.id}`)).status, 204);
  assert.equal((await harness.call('DELETE', `/v1/runs/${id}`)).status, 200);
  await waitForType('sandbox.destroyed', `&run_id=${id}`);
  const events = (await list(`?run_id=${id}`)).filter(({ type }) => type !== 'usage.billed');
  assert.deepEqual(typesOf(events), [
    'sandbox.created',
    'snapshot.created',
    'sandbox.forked',
    'sandbox.hibernated',
    'sandbox.resumed',
    'sandbox.rolled_back',
    'snapshot.deleted',
    'sandbox.destroyed',
  ]);
  for (const event of events) {
    assert.deepEqual([event.run_id, event.team_id, event.labels], [id, team_id, { job: 'nightly' }]);
    assert.ok(Math.abs(Date.parse(event.timestamp) - Date.now()) < 60_000);
  }
  assert.match(String(events[0]!.data['image']), /node:22-slim@sha256/u);
  assert.equal(events[1]!.data['snapshot_id'], snapshot.id);
  assert.equal(events[2]!.data['child'], child.id);
  assert.equal(events[7]!.data['reason'], 'requested');
  const ids = (await list('?limit=500')).map((event) => event.id);
  assert.deepEqual(
    ids,
    [...new Set(ids)].toSorted((one, other) => one - other),
  );
});

test('a failed create, a command that ends and each billed period are events', async () => {
  const { id } = await harness.create();
  const { body } = await harness.call('POST', `/v1/runs/${id}/commands`, { body: { command: 'make' } });
  const guest = harness.runner.commands.find(id, body.id);
  harness.runner.commands.end(id, guest, 3);
  const exited = await waitForType('command.exited', `&run_id=${id}`);
  assert.deepEqual([exited.data['command_id'], exited.data['exit_code']], [body.id, 3]);
  await harness.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'id' } });
  await harness.call('DELETE', `/v1/runs/${id}`);
  const billed = await waitForType('usage.billed', `&run_id=${id}`);
  assert.deepEqual([billed.data['vcpus'], billed.data['mem_mib']], [1, 1024]);
  assert.ok(Date.parse(String(billed.data['ended_at'])) > Date.parse(String(billed.data['started_at'])));
  assert.equal((await list(`?run_id=${id}&type=command.exited`)).length, 1, 'exec is no event');
});

test('disks are events when callers begin and cease to see them', async () => {
  await harness.call('POST', '/v1/disks', { body: { name: 'data', size_gb: 3 } });
  const created = await waitForType('disk.created');
  assert.deepEqual([created.data, created.run_id], [{ disk: 'data', size_gb: 3 }, null]);
  const { id } = await harness.create({ disk: 'data' });
  assert.equal((await waitForType('disk.attached', `&run_id=${id}`)).data['disk'], 'data');
  await harness.call('DELETE', `/v1/runs/${id}`);
  await waitForType('disk.detached', `&run_id=${id}`);
  await waitFor('the disk to be free', async () => {
    return (await harness.call('DELETE', '/v1/disks/data')).status === 204;
  });
  assert.deepEqual((await waitForType('disk.deleted')).data, { disk: 'data' });
});

test('pages are linked, filtered, and begin after an id', async () => {
  const label = `of:${Date.now()}`;
  const [name, value] = label.split(':') as [string, string];
  const runs = [];
  for (let n = 0; n < 3; n += 1) runs.push(await harness.create({ labels: { [name]: value, other: 'x' } }));
  await waitForType('sandbox.created', `&run_id=${runs[2]!.id}`);
  const query = `label=${label}&type=sandbox.created&limit=2`;
  const first = await harness.call('GET', `/v1/events?${query}`);
  assert.deepEqual(
    first.body.map((event: EventRecord) => event.run_id),
    runs.slice(0, 2).map(({ id }) => id),
  );
  const next = /^<([^>]+)>; rel="next"$/.exec(first.headers.get('link') ?? '')?.[1];
  const second = await harness.call('GET', next!);
  assert.deepEqual(
    [second.body.map((event: EventRecord) => event.run_id), second.headers.get('link')],
    [[runs[2]!.id], null],
  );
  assert.deepEqual(await list(`?${query}&after=${second.body[0].id}`), []);
  assert.deepEqual(await list(`?${query}&run_id=runnothing`), []);
});

test('a field that is invalid is named', async () => {
  for (const [query, field] of [
    ['?after=x', 'after'],
    ['?after=-1', 'after'],
    ['?limit=0', 'limit'],
    ['?limit=501', 'limit'],
    ['?type=no.such', 'type'],
    ['?label=x', 'label'],
    ['?what=1', 'what'],
  ] as const) {
    const { status, body } = await harness.call('GET', `/v1/events${query}`);
    assert.deepEqual([status, body.error.code], [400, 'invalid_request'], query);
    assert.ok(body.error.message.includes(field), `${query}: ${body.error.message}`);
  }
  const headers = { 'last-event-id': 'x', accept: 'text/event-stream' };
  assert.equal((await harness.call('GET', '/v1/events', { headers })).status, 400);
});

test('a stream begins with the position, sends events as they happen, and continues without repetition', async () => {
  let last: number;
  {
    await using stream = new EventsClient(harness, '');
    await stream.wait('the position', ({ type }) => type === 'position');
    const delaysMs: number[] = [];
    for (let n = 0; n < 9; n += 1) {
      const { id } = await harness.create();
      const startedAt = performance.now();
      await stream.wait('the event', (frame) => isEvent(frame) && frame.run_id === id);
      delaysMs.push(performance.now() - startedAt);
    }
    const medianMs = delaysMs.toSorted((one, other) => one - other)[4]!;
    assert.ok(medianMs < SOON_MS, `${medianMs} ms`);
    last = stream.ids.at(-1)!;
    assert.equal((stream.frames.at(-1) as EventRecord).id, last);
  }
  const missed = await harness.create();
  for (const [query, headers] of [
    [`?after=${last}`, {}],
    ['', { 'last-event-id': String(last) }],
    ['?after=0', { 'last-event-id': String(last) }],
  ] as const) {
    await using stream = new EventsClient(harness, query, { headers });
    await stream.wait('the missed event', (frame) => isEvent(frame) && frame.run_id === missed.id);
    assert.deepEqual(stream.frames[0], { type: 'position', id: last });
    assert.ok(stream.frames.filter(isEvent).every((frame) => frame.id > last));
  }
});

test('a stream is filtered like a page', async () => {
  await using stream = new EventsClient(harness, '?type=sandbox.destroyed&type=sandbox.failed');
  await stream.wait('the position', ({ type }) => type === 'position');
  const { id } = await harness.create();
  await harness.call('DELETE', `/v1/runs/${id}`);
  await stream.wait('the end', (frame) => isEvent(frame) && frame.run_id === id);
  assert.deepEqual(typesOf(stream.frames), ['position', 'sandbox.destroyed']);
});

test("another organization's events are not seen, and neither are its streams woken with them", async () => {
  const theirKey = await harness.addOrganization();
  await using theirs = new EventsClient(harness, '', { apiKey: theirKey });
  await theirs.wait('the position', ({ type }) => type === 'position');
  const { id } = await harness.create();
  await waitForType('sandbox.created', `&run_id=${id}`);
  assert.deepEqual(await list('?limit=500', theirKey), []);
  await delay(50);
  assert.deepEqual(typesOf(theirs.frames), ['position']);
  const { status } = await harness.call('GET', '/v1/events', { apiKey: null });
  assert.equal(status, 401);
});

test('an organization has a hundred streams at once, and a place is free when one has ended', async () => {
  const apiKey = await harness.addOrganization();
  const stop = new AbortController();
  const open = async (): Promise<Response> => {
    const headers = { accept: 'text/event-stream' };
    return harness.fetch('GET', '/v1/events', { headers, apiKey, signal: stop.signal });
  };
  // A response that nothing refers to is closed by the garbage collector.
  const streams = await Promise.all(Array.from({ length: 101 }, open));
  assert.deepEqual(
    streams.map(({ status }) => status).toSorted((one, other) => one - other),
    [...Array<number>(100).fill(200), 429],
  );
  assert.deepEqual(await list('', apiKey), []);
  stop.abort();
  await waitFor('a free place', async () => {
    const again = new AbortController();
    const headers = { accept: 'text/event-stream' };
    const { status } = await harness.fetch('GET', '/v1/events', { headers, apiKey, signal: again.signal });
    again.abort();
    return status === 200;
  });
});

test('a key that is limited to its team gets the events of the team alone', async () => {
  const owner = await AccountClient.signUp(harness, { invitation: INVITATION });
  const team = (await owner.call('POST', `${owner.organization}/teams`, { name: 'testers' })).body;
  const path = `${owner.organization}/teams/${team.id}/keys`;
  const limited = (await owner.call('POST', path, { name: 'a key', team_only: true })).body.key as string;
  await using stream = new EventsClient(harness, '', { apiKey: limited });
  await stream.wait('the position', ({ type }) => type === 'position');
  const other = await harness.create();
  await harness.call('POST', '/v1/disks', { body: { name: 'of-others', size_gb: 1 } });
  const own = (await harness.call('POST', '/v1/runs', { apiKey: limited, body: { image: 'node:22-slim' } }))
    .body;
  await stream.wait('the event', (frame) => isEvent(frame) && frame.run_id === own.id);
  const seen = await list('?limit=500', limited);
  assert.deepEqual([...new Set(seen.map((event) => event.run_id))], [own.id]);
  assert.deepEqual(typesOf(stream.frames), ['position', 'sandbox.created']);
  assert.deepEqual(await list(`?run_id=${other.id}`, limited), []);
});

test('events that are no longer kept are reported: 410 for a page, and "lost" in a stream', async () => {
  const { id } = await harness.create();
  const created = await waitForType('sandbox.created', `&run_id=${id}`);
  await harness.create();
  await waitFor('another event', async () => (await list(`?after=${created.id}`)).length > 0);
  await using db = harness.openDatabase();
  const clock = { wallMs: () => Date.now() };
  const keptMs = 1;
  await new EventStore(db, clock, { keptMs: 3_600_000 }).purge();
  assert.equal((await harness.call('GET', `/v1/events?after=${created.id}`)).status, 200, 'none is that old');
  await sql`UPDATE events SET numbered_at = 0`.execute(db);
  await new EventStore(db, clock, { keptMs }).purge();
  const gone = await harness.call('GET', `/v1/events?after=${created.id}`);
  assert.deepEqual([gone.status, gone.body.error.code], [410, 'events_lost']);
  assert.match(gone.body.error.message, /after/u);
  assert.deepEqual(await list('?after=0'), []);
  const next = await harness.create();
  await using stream = new EventsClient(harness, `?after=${created.id}`);
  await stream.wait('the next event', (frame) => isEvent(frame) && frame.run_id === next.id);
  assert.equal(stream.frames[0]!.type, 'lost');
  assert.equal(typesOf(stream.frames).filter((type) => type === 'lost').length, 1);
  const future = await harness.call('GET', '/v1/events?after=999999999999');
  assert.equal(future.status, 410);
});

test('only the newest events of an organization are kept, and others keep theirs', async () => {
  const theirKey = await harness.addOrganization();
  await harness.call('POST', '/v1/runs', { apiKey: theirKey, body: { image: 'node:22-slim' } });
  const runs: { id: string }[] = [];
  for (let n = 0; n < 4; n += 1) runs.push(await harness.create());
  await waitForType('sandbox.created', `&run_id=${runs[3]!.id}`);
  await waitFor('the events', async () => (await list('?after=0', theirKey)).length === 1);
  await using db = harness.openDatabase();
  const before = await list('?limit=500');
  await new EventStore(db, { wallMs: () => Date.now() }, { maxKept: 3 }).purge();
  assert.deepEqual(await list('?limit=500'), before.slice(-3));
  assert.equal((await list('?after=0', theirKey)).length, 1);
});

test('events that a control did not number are numbered by the next one, and streams end with their control', async () => {
  await using stream = new EventsClient(harness, '');
  await stream.wait('the position', ({ type }) => type === 'position');
  const { id } = await harness.create();
  await stream.wait('the event', (frame) => isEvent(frame) && frame.run_id === id);
  const [newest] = (await list('?limit=500')).slice(-1);
  await harness.stopControl();
  await waitFor('the end of the stream', () => stream.isOver);
  assert.ok(stream.frames.every(({ type }) => type !== 'error'));
  await using db = harness.openDatabase();
  await sql`
    INSERT INTO pending_events (organization_id, type, at, data)
    SELECT organization_id, 'credit.exhausted', 1, '{}' FROM sandboxes WHERE id = ${id}`.execute(db);
  await harness.startControl();
  const event = await waitForType('credit.exhausted');
  assert.ok(event.id > newest!.id);
});

test('many transactions that commit at once lose no event for a reader that follows', async () => {
  await using other = await prepareHarness();
  await other.runner.start();
  await other.startControl();
  await waitFor('healthz', async () => (await other.call('GET', '/healthz')).status === 200);
  const { id } = (await other.call('POST', '/v1/runs', { body: { image: 'node:22-slim' } })).body;
  const writers = 8;
  const each = 60;
  const seen: EventRecord[] = [];
  let isWritten = false;
  const read = async (): Promise<void> => {
    for (let last = 0; ;) {
      const isLast = isWritten;
      const page = (await other.call('GET', `/v1/events?after=${last}&type=credit.restored&limit=500`)).body;
      seen.push(...page);
      last = page.at(-1)?.id ?? last;
      if (isLast && seen.length === writers * each) return;
    }
  };
  const write = async (writer: number): Promise<void> => {
    await using db = other.openDatabase();
    for (let n = 0; n < each; n += 1)
      await db.transaction().execute(async (transaction) => {
        await sql`
          INSERT INTO pending_events (organization_id, type, at, data)
          SELECT organization_id, 'credit.restored', ${writer * each + n}, '{}'
          FROM sandboxes WHERE id = ${id}`.execute(transaction);
        // The later the number was taken, the earlier some of them commit.
        await sql`SELECT pg_sleep(${((n * 7 + writer * 3) % 11) / 1000})`.execute(transaction);
      });
  };
  const reading = read();
  await Promise.all(Array.from({ length: writers }, (_, writer) => write(writer)));
  isWritten = true;
  await Promise.race([reading, delay(20_000, undefined, { ref: false })]);
  const times = seen.map(({ timestamp }) => Date.parse(timestamp)).toSorted((one, two) => one - two);
  assert.deepEqual(
    times,
    Array.from({ length: writers * each }, (_, n) => n),
  );
});
