/** Hibernation and resume, and how they are billed. */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { AppError, computeCostUnits, costCents } from '@coppice/contract';
import { startHarness, waitFor, type ControlHarness } from '../../testing/control-harness.ts';
import { STRETCH_USAGE } from '../../testing/fakes/fake-captures.ts';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
afterEach(() => harness.runner.captures.reset());

const HOUR_MS = 3_600_000;

const post = (id: string, what: string, body?: object) =>
  harness.call('POST', `/v1/runs/${id}/${what}`, body === undefined ? {} : { body });
const exec = (id: string) => post(id, 'exec', { command: 'true' });
const statusOf = async (id: string) => (await harness.call('GET', `/v1/runs/${id}`)).body.status;

test('a sandbox that is hibernated and resumed keeps its id, and has a VM only while it runs', async () => {
  const { id } = await harness.create();
  const hibernated = await post(id, 'hibernate');
  assert.equal(hibernated.status, 200);
  assert.equal(hibernated.body.status, 'hibernated');
  assert.equal(hibernated.body.operation, null);
  assert.ok(Date.parse(hibernated.body.hibernated_at) <= Date.now());
  assert.equal(hibernated.body.expires_at, null);
  assert.ok(!harness.runner.vms.has(id));
  const [listed] = (await harness.call('GET', '/v1/runs?status=hibernated')).body;
  assert.equal(listed.id, id);
  const resumed = await post(id, 'resume');
  assert.equal(resumed.status, 200);
  assert.equal(resumed.body.id, id);
  assert.equal(resumed.body.status, 'running');
  assert.equal(resumed.body.hibernated_at, null);
  assert.ok(Date.parse(resumed.body.expires_at) > Date.now() + 290_000);
  assert.equal((await exec(id)).status, 200);
  await waitFor('its files to be gone', () => !harness.runner.captures.has(id));
});

test('a hibernated sandbox refuses a use and a copy with 409 and its state, and a destroy leaves nothing', async () => {
  const { id } = await harness.create();
  await post(id, 'hibernate');
  for (const [what, body] of [
    ['exec', { command: 'true' }],
    ['fork', {}],
    ['snapshot', {}],
    ['hibernate', undefined],
  ] as const) {
    const answer = await post(id, what, body);
    assert.equal(answer.status, 409, what);
    assert.match(answer.body.error.message, /the sandbox is hibernated/);
  }
  assert.equal((await harness.call('PATCH', `/v1/runs/${id}`, { body: { timeout: 7 } })).body.timeout, 7);
  assert.equal((await harness.call('DELETE', `/v1/runs/${id}`)).status, 200);
  assert.ok(!harness.runner.captures.has(id));
  for (const what of ['resume', 'hibernate']) assert.equal((await post(id, what)).status, 409);
});

test('a body with a field is refused, an empty body is accepted', async () => {
  const { id } = await harness.create();
  const refused = await post(id, 'hibernate', { keep: true });
  assert.equal(refused.status, 400);
  assert.match(refused.body.error.message, /^keep: unknown field in the body/);
  assert.equal((await post(id, 'hibernate', {})).status, 200);
  assert.equal((await post(id, 'resume', {})).status, 200);
});

test('a running sandbox cannot be resumed', async () => {
  const { id } = await harness.create();
  const answer = await post(id, 'resume');
  assert.equal(answer.status, 409);
  assert.equal(answer.body.error.code, 'invalid_state');
});

test('time in hibernation is not billed, and the usage of all stretches of running is added up', async () => {
  const { id } = await harness.create({ vcpus: 2, mem_mib: 2048 });
  await post(id, 'hibernate');
  {
    // As if it had been created two hours ago, and hibernated for the last of them.
    await using db = harness.openDatabase();
    const row = await db.selectFrom('sandboxes').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
    const change = {
      created_at: row.created_at - 2 * HOUR_MS,
      created_boot_ms: (row.created_boot_ms ?? 0) - 2 * HOUR_MS,
      hibernated_at: (row.hibernated_at ?? 0) - HOUR_MS,
      billed_ms: row.billed_ms + HOUR_MS,
    };
    await db.updateTable('sandboxes').set(change).where('id', '=', id).execute();
  }
  await harness.stopControl();
  await harness.startControl();
  await post(id, 'resume');
  const { body } = await harness.call('DELETE', `/v1/runs/${id}`);
  assert.ok(body.uptime_ms >= 2 * HOUR_MS);
  const cost = (billedMs: number) => costCents(computeCostUnits({ vcpus: 2, memMiB: 2048, billedMs }));
  assert.ok(body.cost_cents >= cost(HOUR_MS), `${body.cost_cents}`);
  assert.ok(body.cost_cents < cost(HOUR_MS + 60_000), `${body.cost_cents}`);
  assert.equal(body.cpu_ms, STRETCH_USAGE.cpu_ms + 1234);
  assert.equal(body.mem_peak_bytes, STRETCH_USAGE.mem_peak_bytes);
});

test('a hibernation that fails reports the reason, and the sandbox keeps running', async () => {
  const { id } = await harness.create();
  harness.runner.captures.onHibernate = () => {
    throw new AppError('capacity', "the host's disk has no room; the sandbox runs on");
  };
  const refused = await post(id, 'hibernate');
  assert.equal(refused.status, 429);
  assert.match(refused.body.error.message, /runs on/);
  assert.equal((await exec(id)).status, 200);
  harness.runner.captures.reset();
  assert.equal((await post(id, 'hibernate')).status, 200);
});

test('a resume that fails leaves the sandbox hibernated, and can be tried again', async () => {
  const { id } = await harness.create();
  await post(id, 'hibernate');
  harness.runner.captures.onRestore = () => {
    throw new AppError('capacity', 'no room in memory');
  };
  assert.equal((await post(id, 'resume')).status, 429);
  assert.equal(await statusOf(id), 'hibernated');
  harness.runner.captures.onRestore = () => {
    throw new AppError('snapshot_unusable', 'needs QEMU 10.0.2, which is not here');
  };
  const unusable = await post(id, 'resume');
  assert.equal(unusable.status, 409);
  assert.equal(unusable.body.error.code, 'snapshot_unusable');
  harness.runner.captures.reset();
  assert.equal((await post(id, 'resume')).status, 200);
});

test('a resume reports that the files are gone; the sandbox stays hibernated, and can be destroyed', async () => {
  const { id } = await harness.create();
  await post(id, 'hibernate');
  harness.runner.captures.saved.clear();
  const answer = await post(id, 'resume');
  assert.equal(answer.status, 409);
  assert.equal(answer.body.error.code, 'snapshot_unusable');
  assert.equal(await statusOf(id), 'hibernated');
  assert.equal((await harness.call('DELETE', `/v1/runs/${id}`)).status, 200);
});

test('during a hibernation a use and a fork are refused, a resume and a destroy wait', async () => {
  const [{ id }, { id: other }] = await Promise.all([harness.create(), harness.create()]);
  const gate = Promise.withResolvers<void>();
  harness.runner.captures.onHibernate = () => gate.promise;
  const hibernating = [post(id, 'hibernate'), post(other, 'hibernate')];
  for (const each of [id, other])
    await harness.waitForRecord(each, (record) => record.operation === 'hibernating');
  assert.match((await exec(id)).body.error.message, /the sandbox is hibernating/);
  for (const what of ['fork', 'snapshot', 'hibernate'])
    assert.equal((await post(id, what)).status, 409, what);
  const resuming = post(id, 'resume');
  const destroying = harness.call('DELETE', `/v1/runs/${other}`);
  gate.resolve();
  for (const answer of await Promise.all(hibernating)) assert.equal(answer.status, 200);
  assert.equal((await resuming).body.status, 'running');
  assert.equal((await destroying).status, 200);
  assert.equal(await statusOf(other), 'destroyed');
});

test('a use that comes during a resume waits and is served', async () => {
  const { id } = await harness.create();
  await post(id, 'hibernate');
  const gate = Promise.withResolvers<void>();
  harness.runner.captures.onRestore = () => gate.promise;
  const resuming = post(id, 'resume');
  await harness.waitForRecord(id, (record) => record.operation === 'resuming');
  const used = exec(id);
  gate.resolve();
  assert.equal((await resuming).status, 200);
  assert.equal((await used).status, 200);
});

test('a client that disconnects during a hibernation does not stop it', async () => {
  const { id } = await harness.create();
  const gate = Promise.withResolvers<void>();
  harness.runner.captures.onHibernate = () => gate.promise;
  const abort = new AbortController();
  const call = harness.fetch('POST', `/v1/runs/${id}/hibernate`, { signal: abort.signal });
  await harness.waitForRecord(id, (record) => record.operation === 'hibernating');
  abort.abort();
  await assert.rejects(call);
  gate.resolve();
  await harness.waitForRecord(id, (record) => record.status === 'hibernated');
});

test('a sandbox whose guest powers off during a hibernation is destroyed, and nothing of it is kept', async () => {
  const { id } = await harness.create();
  harness.runner.captures.onHibernate = () => {
    harness.runner.endVm(id, 'guest_shutdown');
    throw new AppError('not_found', 'there is no such VM');
  };
  const answer = await post(id, 'hibernate');
  assert.ok([404, 409].includes(answer.status), JSON.stringify(answer.body));
  const record = await harness.waitForRecord(id, ({ status }) => status !== 'running');
  assert.equal(record.status_reason, 'guest_shutdown');
});

test('max_lifetime ends a hibernated sandbox', async () => {
  const { id } = await harness.create({ max_lifetime: 1, timeout: 0 });
  const { body } = await post(id, 'hibernate');
  assert.ok(Date.parse(body.expires_at) <= Date.parse(body.created_at) + 1100);
  const record = await harness.waitForRecord(id, ({ status }) => status === 'destroyed');
  assert.equal(record.status_reason, 'max_lifetime');
  await waitFor('its files to be gone', () => !harness.runner.captures.has(id));
});
