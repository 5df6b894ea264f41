/** The end that a caller gives a sandbox as a time, through the real API and database. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startHarness, waitFor, type Answer, type ControlHarness } from '../testing/control-harness.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());

const inMs = (ms: number): string => new Date(Date.now() + ms).toISOString();
const patch = (id: string, body: object): Promise<Answer> =>
  harness.call('PATCH', `/v1/runs/${id}`, { body });

test('the record shows the given end, and as its expiry the earliest of all', async () => {
  const end = inMs(HOUR_MS);
  const { id, ends_at, expires_at } = await harness.create({ timeout: 60, expires_at: end });
  assert.equal(ends_at, end);
  assert.ok(Date.parse(expires_at ?? '') < Date.now() + 61_000);
  const never = await patch(id, { timeout: 0 });
  assert.equal(never.body.expires_at, end);
  const lived = await patch(id, { max_lifetime: 60 });
  assert.ok(Date.parse(lived.body.expires_at) < Date.now() + 61_000);
  const open = await patch(id, { expires_at: null, max_lifetime: null });
  assert.deepEqual([open.body.ends_at, open.body.expires_at], [null, null]);
});

test('a time with an offset is the same time in UTC', async () => {
  const day = new Date(Date.now() + DAY_MS).toISOString().slice(0, 10);
  const { id, ends_at } = await harness.create({ expires_at: `${day}T12:00:00+02:00` });
  assert.equal(ends_at, `${day}T10:00:00.000Z`);
  const log = await (await harness.fetch('GET', `/v1/runs/${id}/audit`)).text();
  assert.equal((await patch(id, { expires_at: `${day}T11:00:00+01:00` })).status, 200);
  assert.equal(await (await harness.fetch('GET', `/v1/runs/${id}/audit`)).text(), log, 'nothing has changed');
});

test('a sandbox ends at the given time even while requests are open', async () => {
  const { id } = await harness.create({ timeout: 0, expires_at: inMs(700) });
  harness.runner.onExec = () => undefined;
  const exec = await harness.fetch('POST', `/v1/runs/${id}/exec`, { body: { command: 'x' } });
  const record = await harness.waitForRecord(id, (found) => found.status === 'destroyed');
  assert.equal(record.status_reason, 'expires_at');
  assert.ok(Date.parse(record.ended_at ?? '') >= Date.parse(record.ends_at ?? '') - 5);
  await exec.body?.cancel();
});

test('a hibernated sandbox ends at the given time, too, whatever auto_hibernate says', async () => {
  const { id } = await harness.create({ timeout: 0, auto_hibernate: true });
  await harness.call('POST', `/v1/runs/${id}/hibernate`);
  const { body } = await patch(id, { expires_at: inMs(300) });
  assert.equal(body.status, 'hibernated');
  const record = await harness.waitForRecord(id, (found) => found.status === 'destroyed');
  assert.equal(record.status_reason, 'expires_at');
  await waitFor('its files to be removed', () => harness.runner.captures.saved.size === 0);
});

test('a child has the end of its parent, a restored sandbox the one that is given', async () => {
  const end = inMs(HOUR_MS);
  const { id } = await harness.create({ expires_at: end });
  const [child] = (await harness.call('POST', `/v1/runs/${id}/fork`)).body;
  assert.equal(child.ends_at, end);
  const { id: snapshot_id } = (await harness.call('POST', `/v1/runs/${id}/snapshot`)).body;
  const restore = (body: object): Promise<Answer> =>
    harness.call('POST', '/v1/runs/restore', { body: { snapshot_id, ...body } });
  assert.equal((await restore({})).body.ends_at, null);
  const later = inMs(2 * HOUR_MS);
  assert.equal((await restore({ expires_at: later })).body.ends_at, later);
  assert.equal((await restore({ expires_at: inMs(-1) })).status, 400);
});

test('the end is kept over a restart of control', async () => {
  const end = inMs(HOUR_MS);
  const { id } = await harness.create({ timeout: 0, expires_at: end });
  await harness.stopControl();
  await harness.startControl();
  const { body } = await harness.call('GET', `/v1/runs/${id}`);
  assert.deepEqual([body.ends_at, body.expires_at], [end, end]);
});

test('an end in the past, one too far ahead and one that is no time are refused with the remedy', async () => {
  const { id } = await harness.create();
  const creates = harness.runner.creates.length;
  for (const [expires_at, message] of [
    [inMs(-1), /^expires_at: it is 20.*Z now; choose a time in the future$/u],
    [inMs(366 * DAY_MS), /^expires_at: .*; choose a time until 20.*Z$/u],
    ['tomorrow', /^expires_at: must be a time such as 20/u],
    ['2026-11-21T06:30:00', /^expires_at: must be a time such as 20/u],
    [1_700_000_000, /^expires_at: must be a time such as 20/u],
  ] as const) {
    for (const answer of [
      await patch(id, { expires_at }),
      await harness.call('POST', '/v1/runs', { body: { image: 'node:22-slim', expires_at } }),
    ]) {
      assert.equal(answer.status, 400, String(expires_at));
      assert.match(answer.body.error.message, message);
    }
  }
  assert.equal(harness.runner.creates.length, creates);
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).body.ends_at, null);
});
