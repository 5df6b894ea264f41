/** Usage, history and statements over HTTP, of sandboxes that the API created and destroyed. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { computeCostUnits, costCents, type HistoryRecord, type SandboxRecord } from '@coppice/contract';
import { startHarness, type ControlHarness } from '../testing/control-harness.ts';
import { forceState } from '../testing/sandbox-row.ts';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());

const get = (path: string, apiKey?: string) =>
  harness.call('GET', path, apiKey === undefined ? {} : { apiKey });

async function createIn(apiKey: string, body: object = {}): Promise<string> {
  const answer = await harness.call('POST', '/v1/runs', { apiKey, body: { image: 'node:22-slim', ...body } });
  assert.equal(answer.status, 201, JSON.stringify(answer.body));
  return String(answer.body.id);
}

const destroy = (id: string, apiKey: string) => harness.call('DELETE', `/v1/runs/${id}`, { apiKey });
const month = () => new Date().toISOString().slice(0, 7);

/** Sums the statements of this month and of the one an hour ago, in case a month ends during the test. */
async function statedMs(apiKey: string): Promise<number> {
  const from = new Date();
  let total = 0;
  for (const name of new Set([month(), new Date(from.getTime() - 3_600_000).toISOString().slice(0, 7)])) {
    const { body } = await get(`/v1/statements/${name}`, apiKey);
    for (const line of body.lines) total += line.billed_ms;
  }
  return total;
}

test('the history repeats the answers of destroys, and its sums equal those of usage and statement', async () => {
  const apiKey = await harness.addOrganization();
  const ids = [await createIn(apiKey, { vcpus: 2, mem_mib: 512 }), await createIn(apiKey)];
  const [first = '', second = ''] = ids;
  await harness.call('POST', `/v1/runs/${first}/hibernate`, { apiKey });
  await harness.call('POST', `/v1/runs/${first}/resume`, { apiKey });
  const ended = [await destroy(first, apiKey), await destroy(second, apiKey)];
  const history = (await get('/v1/runs/history', apiKey)).body as HistoryRecord[];
  assert.deepEqual(
    history.map(({ id }) => id),
    [second, first],
  );
  assert.deepEqual(
    history.map(({ cost_cents, uptime_ms, cpu_ms }) => [cost_cents, uptime_ms, cpu_ms]),
    ended.toReversed().map(({ body }) => [body.cost_cents, body.uptime_ms, body.cpu_ms]),
  );
  const units = history.map(({ vcpus, mem_mib, billed_ms }) =>
    computeCostUnits({ vcpus, memMiB: mem_mib, billedMs: billed_ms }),
  );
  const { body: usage } = await get('/v1/usage', apiKey);
  assert.equal(usage.history_cost_cents, costCents(units.reduce((sum, one) => sum + one, 0n)));
  assert.equal(usage.total_cost_cents, usage.history_cost_cents);
  assert.deepEqual([usage.active_sandboxes, usage.history_sandboxes, usage.active_cost_cents], [0, 2, 0]);
  const billedMs = history.reduce((sum, entry) => sum + entry.billed_ms, 0);
  assert.equal(await statedMs(apiKey), billedMs);
  const cpuMs = history.reduce((sum, { vcpus, billed_ms }) => sum + vcpus * billed_ms, 0);
  assert.equal(usage.cpu_seconds, cpuMs / 1000);
});

test('a live sandbox costs up to now, and a hibernated one costs no more', async () => {
  const apiKey = await harness.addOrganization();
  const id = await createIn(apiKey);
  const running = (await get('/v1/usage', apiKey)).body;
  assert.equal(running.active_sandboxes, 1);
  await harness.call('POST', `/v1/runs/${id}/hibernate`, { apiKey });
  const [asleep, later] = [(await get('/v1/usage', apiKey)).body, (await get('/v1/usage', apiKey)).body];
  assert.ok(asleep.active_cost_cents >= running.active_cost_cents);
  assert.equal(later.active_cost_cents, asleep.active_cost_cents);
  const { body } = await destroy(id, apiKey);
  assert.equal(body.cost_cents, asleep.active_cost_cents);
});

test('the record shows what is billed, and since when the rest runs', async () => {
  const apiKey = await harness.addOrganization();
  const id = await createIn(apiKey);
  const read = async () => (await get(`/v1/runs/${id}`, apiKey)).body as SandboxRecord;
  const running = await read();
  assert.deepEqual([running.billed_ms, running.running_since], [0, running.created_at]);
  await harness.call('POST', `/v1/runs/${id}/hibernate`, { apiKey });
  const asleep = await read();
  assert.ok(asleep.billed_ms > 0);
  assert.equal(asleep.running_since, null);
  await harness.call('POST', `/v1/runs/${id}/resume`, { apiKey });
  const resumed = await read();
  assert.equal(resumed.billed_ms, asleep.billed_ms);
  const startMs = Date.parse(resumed.running_since ?? '');
  assert.ok(startMs >= Date.parse(asleep.hibernated_at ?? '') - 1000 && startMs <= Date.now() + 1000);
  const { body } = await destroy(id, apiKey);
  const ended = await read();
  const units = computeCostUnits({ vcpus: ended.vcpus, memMiB: ended.mem_mib, billedMs: ended.billed_ms });
  assert.equal(body.cost_cents, costCents(units));
  assert.equal(ended.running_since, null);
});

test('sandboxes that end at the same time are all in the sums', async () => {
  const apiKey = await harness.addOrganization();
  const ids = await Promise.all(Array.from({ length: 12 }, () => createIn(apiKey)));
  const results = await Promise.all(ids.map((id) => destroy(id, apiKey)));
  const history = (await get('/v1/runs/history', apiKey)).body as HistoryRecord[];
  const units = history.map(({ vcpus, mem_mib, billed_ms }) =>
    computeCostUnits({ vcpus, memMiB: mem_mib, billedMs: billed_ms }),
  );
  const { body: usage } = await get('/v1/usage', apiKey);
  assert.equal(usage.history_sandboxes, results.length);
  assert.equal(usage.history_cost_cents, costCents(units.reduce((sum, one) => sum + one, 0n)));
});

test('the history is filtered and paged', async () => {
  const apiKey = await harness.addOrganization();
  const ids: string[] = [];
  for (let index = 0; index < 5; index += 1) {
    const labels = { job: index % 2 === 0 ? 'even' : 'odd' };
    const id = await createIn(apiKey, { labels, image: index === 4 ? 'python:3.12-slim' : 'node:22-slim' });
    await destroy(id, apiKey);
    ids.push(id);
  }
  const list = async (query: string) =>
    ((await get(`/v1/runs/history${query}`, apiKey)).body as HistoryRecord[]).map(({ id }) => id);
  assert.deepEqual(await list(''), ids.toReversed());
  assert.deepEqual(await list('?label=job:odd'), [ids[3], ids[1]]);
  assert.deepEqual(await list('?status=failed'), []);
  assert.deepEqual(await list('?status=failed&status=failed'), []);
  assert.deepEqual(await list('?status=failed&status=destroyed'), ids.toReversed());
  assert.deepEqual(await list('?image=registry.test/library/python:3.12-slim'), [ids[4]]);
  assert.deepEqual(await list('?image=registry.test/library/node:22'), []);
  const whole = (await get('/v1/runs/history', apiKey)).body as HistoryRecord[];
  const at = encodeURIComponent(whole[2]?.destroyed_at ?? '');
  assert.ok((await list(`?from=${at}`)).length >= 3);
  assert.ok((await list(`?to=${at}`)).length <= 2);
  let path: string | undefined = '/v1/runs/history?limit=2&label=job:even';
  const paged: string[] = [];
  while (path !== undefined) {
    const page = await get(path, apiKey);
    paged.push(...(page.body as HistoryRecord[]).map(({ id }) => id));
    path = /<([^>]+)>/.exec(page.headers.get('link') ?? '')?.[1];
  }
  assert.deepEqual(paged, [ids[4], ids[2], ids[0]]);
});

test('a malformed query is refused with the name of the parameter', async () => {
  for (const [path, pattern] of [
    ['/v1/runs/history?from=yesterday', /from/],
    ['/v1/runs/history?status=running', /status/],
    ['/v1/runs/history?image=node', /image/],
    ['/v1/runs/history?when=now', /when/],
    ['/v1/statements/2026-13', /month/],
    ['/v1/statements/november', /month/],
    ['/v1/statements/2026-11?format=pdf', /format/],
    ['/v1/statements/2026-11?cursor=x', /cursor/],
  ] as const) {
    const { status, body } = await get(path);
    assert.equal(status, 400, path);
    assert.match(body.error.message, pattern, path);
  }
});

test('another organization sees no usage, history or statement of it', async () => {
  const apiKey = await harness.addOrganization();
  await destroy(await createIn(apiKey), apiKey);
  const other = await harness.addOrganization();
  assert.deepEqual((await get('/v1/runs/history', other)).body, []);
  const { body: usage } = await get('/v1/usage', other);
  assert.deepEqual([usage.history_sandboxes, usage.total_cost_cents, usage.cpu_seconds], [0, 0, 0]);
  const { body: statement } = await get(`/v1/statements/${month()}`, other);
  assert.deepEqual([statement.sandboxes, statement.lines, statement.teams], [0, [], []]);
  for (const path of ['/v1/usage', '/v1/runs/history', '/v1/statements/2026-11'])
    assert.equal((await harness.call('GET', path, { apiKey: null })).status, 401, path);
});

test('a statement has the same lines as CSV and in pages of JSON', async () => {
  const apiKey = await harness.addOrganization();
  for (let index = 0; index < 3; index += 1) await destroy(await createIn(apiKey), apiKey);
  const running = await createIn(apiKey);
  await harness.call('POST', `/v1/runs/${running}/hibernate`, { apiKey });
  const path = `/v1/statements/${month()}`;
  const response = await harness.fetch('GET', `${path}?format=csv`, { apiKey });
  assert.equal(response.headers.get('content-type'), 'text/csv; charset=utf-8');
  const [head, ...lines] = (await response.text()).trimEnd().split('\r\n');
  assert.equal(head, 'sandbox_id,team_id,image,vcpus,mem_mib,billed_ms,cost_cents');
  const whole = (await get(path, apiKey)).body;
  assert.equal(whole.complete, false);
  assert.deepEqual(
    lines.map((line) => [line.split(',')[0], Number(line.split(',')[5]), Number(line.split(',')[6])]),
    whole.lines.map((line: Record<string, unknown>) => [
      line['sandbox_id'],
      line['billed_ms'],
      line['cost_cents'],
    ]),
  );
  const first = await get(`${path}?limit=3`, apiKey);
  const next = /<([^>]+)>/.exec(first.headers.get('link') ?? '')?.[1] ?? '';
  const second = await get(next, apiKey);
  assert.deepEqual([...first.body.lines, ...second.body.lines], whole.lines);
  assert.equal(second.body.cost_cents, whole.cost_cents);
  assert.equal(second.headers.get('link'), null);
});

test('a past month is complete unless a live sandbox may still turn out to have ended in it', async () => {
  const apiKey = await harness.addOrganization();
  const id = await createIn(apiKey);
  assert.equal((await get('/v1/statements/2020-01', apiKey)).body.complete, true);
  await using db = harness.openDatabase();
  const at = Date.UTC(2020, 0, 31);
  const since = { created_at: at, last_seen_at: at, created_boot_ms: null, last_seen_boot_ms: null };
  const set = (status: 'creating' | 'running') =>
    db
      .updateTable('sandboxes')
      .set(forceState({ boot_id: null, ...since, status }))
      .where('id', '=', id)
      .execute();
  await set('creating');
  assert.equal((await get('/v1/statements/2020-01', apiKey)).body.complete, false);
  assert.equal((await get('/v1/statements/2019-12', apiKey)).body.complete, true);
  // Its runner has been seen with the VM since then.
  await set('running');
  assert.equal((await get('/v1/statements/2020-01', apiKey)).body.complete, true);
});
