/** Changes of a sandbox's settings by PATCH, through the real API and database. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { startHarness, waitFor, type Answer, type ControlHarness } from '../testing/control-harness.ts';
import { verifyLog } from '../testing/verify-log.ts';

let harness: ControlHarness;
let id = '';
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(async () => {
  ({ id } = await harness.create({ labels: { a: '1' } }));
});

const patch = (body: object): Promise<Answer> => harness.call('PATCH', `/v1/runs/${id}`, { body });

async function change(body: object): Promise<Answer['body']> {
  const answer = await patch(body);
  assert.equal(answer.status, 200, JSON.stringify(answer.body));
  const got = await harness.call('GET', `/v1/runs/${id}`);
  assert.deepEqual(steady(got.body), steady(answer.body));
  return answer.body;
}

/** Returns a record without a time that is computed anew for each answer. */
function steady(record: Record<string, unknown>): Record<string, unknown> {
  return { ...record, expires_at: null };
}

/** Returns the data of each entry of the log about settings. */
async function listChanges(): Promise<unknown[]> {
  const text = await (await harness.fetch('GET', `/v1/runs/${id}/audit`)).text();
  const entries = text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  return entries.filter(({ event }) => event === 'settings.changed').map(({ data }) => data);
}

/** Acts like another control that starts after this one was killed. */
async function restart(): Promise<void> {
  await harness.stopControl();
  await harness.startControl();
}

test('all settings are changed at once, are logged in one entry, and survive a restart', async () => {
  const settings = {
    name: `ci ${id}`,
    labels: { b: '2' },
    timeout: 77,
    auto_hibernate: true,
    max_lifetime: 5000,
  };
  const record = await change(settings);
  const { name, labels, timeout, auto_hibernate, max_lifetime } = record;
  assert.deepEqual({ name, labels, timeout, auto_hibernate, max_lifetime }, settings);
  assert.deepEqual(await listChanges(), [settings]);
  const listed = await harness.call('GET', `/v1/runs?label=b:2&name=${encodeURIComponent(name)}`);
  assert.deepEqual(
    listed.body.map((one: { id: string }) => one.id),
    [id],
  );
  await restart();
  assert.deepEqual(steady((await harness.call('GET', `/v1/runs/${id}`)).body), steady(record));
  assert.equal(await verifyLog(harness, id), 2);
});

test('settings that are left out keep their values, and {} or equal values log nothing', async () => {
  await change({ name: `n ${id}` });
  const record = await change({ timeout: 60 });
  assert.deepEqual([record.name, record.labels], [`n ${id}`, { a: '1' }]);
  await change({});
  await change({
    name: `n ${id}`,
    labels: { a: '1' },
    timeout: 60,
    auto_hibernate: false,
    max_lifetime: null,
  });
  assert.deepEqual(await listChanges(), [{ name: `n ${id}` }, { timeout: 60 }]);
});

test('a name and a maximum are removed by null', async () => {
  await change({ name: `n ${id}`, max_lifetime: 60 });
  const record = await change({ name: null, max_lifetime: null, labels: {} });
  assert.deepEqual([record.name, record.max_lifetime, record.labels], [null, null, {}]);
  await change({ max_lifetime: 60 });
  assert.equal((await change({ max_lifetime: 0 })).max_lifetime, null);
  assert.equal((await harness.create({ name: `n ${id}` })).name, `n ${id}`);
});

test('a taken name is refused, and nothing of the request is changed', async () => {
  await harness.create({ name: `other ${id}` });
  const answer = await patch({ name: `other ${id}`, timeout: 1, labels: {} });
  assert.deepEqual([answer.status, answer.body.error.code], [409, 'already_exists']);
  const { body } = await harness.call('GET', `/v1/runs/${id}`);
  assert.deepEqual([body.name, body.timeout, body.labels], [null, 300, { a: '1' }]);
  assert.deepEqual(await listChanges(), []);
  await change({ name: `mine ${id}` });
});

test('a maximum that has passed is refused; one that passes later ends the sandbox', async () => {
  const created = Date.parse((await harness.call('GET', `/v1/runs/${id}`)).body.created_at);
  await waitFor('an age of a second', () => Date.now() > created + 1000);
  const refused = await patch({ max_lifetime: 1 });
  assert.equal(refused.status, 400);
  assert.match(refused.body.error.message, /^max_lifetime: the sandbox is \d+ s old already; choose more/u);
  const { expires_at } = await change({ timeout: 0, max_lifetime: 2 });
  assert.ok(Math.abs(Date.parse(expires_at) - created - 2000) <= 5, expires_at);
  const ended = await harness.waitForRecord(id, ({ status }) => status === 'destroyed');
  assert.equal(ended.status_reason, 'max_lifetime');
});

test('a hibernated sandbox is changed without being resumed', async () => {
  await harness.call('POST', `/v1/runs/${id}/hibernate`);
  const record = await change({
    labels: {},
    name: `h ${id}`,
    timeout: 5,
    auto_hibernate: true,
    max_lifetime: 900,
  });
  assert.deepEqual([record.status, record.timeout], ['hibernated', 5]);
  assert.ok(!harness.runner.vms.has(id));
  const used = await harness.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'true' } });
  assert.equal(used.status, 200, 'auto_hibernate holds from now on');
});

test('labels and names need no runner', async (t) => {
  await harness.runner.stop();
  t.after(() => harness.runner.start());
  assert.deepEqual((await change({ labels: { x: 'y' }, name: `r ${id}` })).labels, { x: 'y' });
});

test('a sandbox that is being created is changed, and its log still begins with its create', async (t) => {
  const gate = Promise.withResolvers<void>();
  t.after(() => (harness.runner.onCreate = () => undefined));
  harness.runner.onCreate = () => gate.promise;
  const creating = harness.create({ name: `early ${id}` });
  const listed = async () => (await harness.call('GET', '/v1/runs?status=creating')).body as { id: string }[];
  await waitFor('its record', async () => (await listed()).length > 0);
  id = (await listed())[0]?.id ?? '';
  await change({ name: `late ${id}`, timeout: 9 });
  gate.resolve();
  const record = await creating;
  assert.deepEqual([record.name, record.timeout], [`late ${id}`, 9]);
  const text = await (await harness.fetch('GET', `/v1/runs/${id}/audit`)).text();
  const [first, ...others] = text.trim().split('\n');
  const { event, data } = JSON.parse(first ?? '') as { event: string; data: { name?: string } };
  assert.deepEqual([event, data.name, others], ['sandbox.created', `late ${id}`, []]);
});

test('an ended sandbox and one of another organization are refused', async () => {
  const apiKey = await harness.addOrganization();
  const theirs = await harness.call('PATCH', `/v1/runs/${id}`, { body: { labels: {} }, apiKey });
  assert.equal(theirs.status, 404);
  await harness.call('DELETE', `/v1/runs/${id}`);
  assert.equal((await patch({ labels: {} })).status, 409);
});
