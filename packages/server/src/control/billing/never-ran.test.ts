/** Creates that failed: their records stay, but they are in no history, count or statement. */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { AppError, type HistoryRecord, type SandboxRecord } from '@coppice/contract';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

let harness: ControlHarness;
let apiKey = '';
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
afterEach(() => {
  harness.runner.onCreate = () => undefined;
  harness.runner.captures.reset();
});

const get = async (path: string) => (await harness.call('GET', path, { apiKey })).body;
const post = (path: string, body: object = {}) => harness.call('POST', path, { apiKey, body });
const create = () => post('/v1/runs', { image: 'node:22-slim' });
const destroy = (id: string) => harness.call('DELETE', `/v1/runs/${id}`, { apiKey });
const listHistory = async (): Promise<string[]> =>
  ((await get('/v1/runs/history')) as HistoryRecord[]).map(({ id }) => id);

function failCreates(): void {
  harness.runner.onCreate = () => {
    throw new AppError('image_not_found', 'the registry does not have it');
  };
}

/** Lists the ids of failed sandboxes, newest first. */
async function listFailed(): Promise<string[]> {
  return ((await get('/v1/runs?status=failed')) as SandboxRecord[]).map(({ id }) => id);
}

/** Checks that no list, count or statement contains these sandboxes, and that each can be found by its id. */
async function assertUncounted(ids: readonly string[], status: 'failed' | 'destroyed'): Promise<void> {
  assert.deepEqual(await listHistory(), []);
  const usage = await get('/v1/usage');
  assert.deepEqual(
    [usage.history_sandboxes, usage.history_cost_cents, usage.cpu_seconds, usage.active_sandboxes],
    [0, 0, 0, 0],
  );
  const statement = await get(`/v1/statements/${new Date().toISOString().slice(0, 7)}`);
  assert.deepEqual([statement.sandboxes, statement.lines, statement.teams], [0, [], []]);
  for (const id of ids) {
    const record = (await get(`/v1/runs/${id}`)) as SandboxRecord;
    assert.deepEqual([record.status, record.create_ms], [status, null]);
    assert.ok(record.status_reason);
  }
}

test('a create whose image is not found is not in the history, and its record says why it failed', async () => {
  apiKey = await harness.addOrganization();
  failCreates();
  for (let count = 0; count < 4; count += 1) assert.equal((await create()).status, 404);
  const failed = await listFailed();
  assert.equal(failed.length, 4);
  assert.equal((await get(`/v1/runs/${failed[0]}`)).status_reason, 'create_failed');
  await assertUncounted(failed, 'failed');
});

test('a sandbox that is destroyed while it is created costs nothing and is not in the history', async () => {
  apiKey = await harness.addOrganization();
  const gate = Promise.withResolvers<void>();
  harness.runner.onCreate = () => gate.promise;
  const creating = create();
  let id = '';
  await waitFor('the record', async () => {
    id = ((await get('/v1/runs?status=creating')) as SandboxRecord[])[0]?.id ?? '';
    return id !== '';
  });
  const { status, body } = await destroy(id);
  assert.deepEqual([status, body.uptime_ms, body.cost_cents], [200, 0, 0]);
  gate.resolve();
  assert.equal((await creating).status, 409);
  await assertUncounted([id], 'destroyed');
});

test('failed children and restores are not in the history, and those that ran are', async () => {
  apiKey = await harness.addOrganization();
  const { id } = (await create()).body;
  const snapshot = (await post(`/v1/runs/${id}/snapshot`)).body.id;
  harness.runner.captures.onRestore = () => {
    throw new AppError('snapshot_unusable', 'a byte of it was changed');
  };
  assert.equal((await post('/v1/runs/restore', { snapshot_id: snapshot })).status, 409);
  harness.runner.captures.onChild = (_, index) => {
    if (index === 0) throw new AppError('guest_unreachable', 'it did not come up');
  };
  const forked = await post(`/v1/runs/${id}/fork`, { count: 2 });
  assert.equal(forked.status, 207);
  const child = forked.body[1].id;
  await destroy(child);
  await destroy(id);
  assert.deepEqual(await listHistory(), [id, child]);
  assert.equal((await get('/v1/usage')).history_sandboxes, 2);
  assert.equal((await listFailed()).length, 2);
});

test('pages and counts include only sandboxes that ran, with failed creates in between', async () => {
  apiKey = await harness.addOrganization();
  const ran: string[] = [];
  for (let index = 0; index < 5; index += 1) {
    failCreates();
    await create();
    harness.runner.onCreate = () => undefined;
    const { id } = (await create()).body;
    await destroy(id);
    ran.unshift(id);
  }
  const paged: string[][] = [];
  for (let path: string | undefined = '/v1/runs/history?limit=2'; path !== undefined;) {
    const page = await harness.call('GET', path, { apiKey });
    paged.push((page.body as HistoryRecord[]).map(({ id }) => id));
    path = /<([^>]+)>/.exec(page.headers.get('link') ?? '')?.[1];
  }
  assert.deepEqual(paged, [ran.slice(0, 2), ran.slice(2, 4), ran.slice(4)]);
  assert.equal((await get('/v1/usage')).history_sandboxes, 5);
});
