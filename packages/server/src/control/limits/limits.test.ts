/** Limits of organizations over HTTP: on request rates and on resources. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { OrganizationLimitsTable } from '../billing/billing-tables.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness({
    requestsPerSecond: 1,
    requestBurst: 20,
    vcpusPerOrganization: 4,
    memMiBPerOrganization: 8192,
    accountIntervalMs: 50,
  });
});
after(() => harness[Symbol.asyncDispose]());

const get = (path: string, apiKey: string) => harness.call('GET', path, { apiKey });
const post = (path: string, apiKey: string, body: unknown = {}) =>
  harness.call('POST', path, { apiKey, body });
const create = (apiKey: string, body: object = {}) =>
  post('/v1/runs', apiKey, { image: 'node:22-slim', ...body });

async function override(
  apiKey: string,
  limits: Partial<Omit<OrganizationLimitsTable, 'organization_id'>>,
): Promise<void> {
  await using db = harness.openDatabase();
  const { id } = await db
    .selectFrom('organizations')
    .select('id')
    .where('name', '=', `org ${apiKey.slice(-10)}`)
    .executeTakeFirstOrThrow();
  await db
    .insertInto('organization_limits')
    .values({
      organization_id: id,
      sandboxes: null,
      vcpus: null,
      mem_mib: null,
      open_requests: null,
      open_streams: null,
      snapshot_bytes: null,
      disks: null,
      disk_gb: null,
      rate_limit_rps: null,
      rate_limit_burst: null,
      ...limits,
    })
    .execute();
}

test('answers show how many requests are left, and requests beyond the limit get 429 with the time to wait', async () => {
  const apiKey = await harness.addOrganization();
  const first = await get('/v1/runs', apiKey);
  assert.equal(first.headers.get('ratelimit-policy'), '"organization";q=20;w=20');
  assert.equal(first.headers.get('ratelimit'), '"organization";r=19;t=1');
  const answers = await Promise.all(Array.from({ length: 30 }, () => get('/v1/nothing', apiKey)));
  const refused = answers.filter(({ status }) => status === 429);
  assert.ok(refused.length >= 8 && refused.length <= 11, `${refused.length}`);
  for (const { headers, body } of refused) {
    assert.equal(body.error.code, 'rate_limited');
    assert.equal(headers.get('retry-after'), '1');
    assert.match(headers.get('ratelimit') ?? '', /^"organization";r=0;t=1$/);
  }
  const other = await harness.addOrganization();
  assert.equal((await get('/v1/runs', other)).status, 200);
});

test('an unknown caller gets 401 and no limits', async () => {
  const { status, headers } = await get('/v1/runs', `cop_live_us_${'x'.repeat(40)}`);
  assert.equal(status, 401);
  assert.equal(headers.get('ratelimit'), null);
  assert.equal((await harness.call('GET', '/healthz')).headers.get('ratelimit'), null);
});

test("traffic to a guest's port does not count as requests", async () => {
  const apiKey = await harness.addOrganization();
  for (let index = 0; index < 40; index += 1) {
    const { status, headers } = await harness.fetch('GET', `/v1/runs/run${'0'.repeat(20)}/proxy/80/`, {
      apiKey,
    });
    assert.equal(status, 404);
    assert.equal(headers.get('ratelimit'), null);
  }
});

test('vCPUs and memory of running sandboxes are limited, and hibernated ones hold none', async () => {
  const apiKey = await harness.addOrganization();
  const big = await create(apiKey, { vcpus: 3 });
  assert.equal(big.status, 201, JSON.stringify(big.body));
  const refused = await create(apiKey, { vcpus: 2 });
  assert.deepEqual([refused.status, refused.body.error.code], [429, 'capacity']);
  assert.match(refused.body.error.message, /3 vCPUs in use and asks for 2 more, the limit is 4/);
  assert.match((await create(apiKey, { mem_mib: 8000 })).body.error.message, /MiB of memory/);
  await post(`/v1/runs/${big.body.id}/hibernate`, apiKey);
  assert.equal((await create(apiKey, { vcpus: 2 })).status, 201);
  const resume = await post(`/v1/runs/${big.body.id}/resume`, apiKey);
  assert.deepEqual([resume.status, resume.body.error.code], [429, 'capacity']);
  assert.equal((await get(`/v1/runs/${big.body.id}`, apiKey)).body.status, 'hibernated');
});

test('children of a fork are counted together', async () => {
  const apiKey = await harness.addOrganization();
  const { body } = await create(apiKey);
  const refused = await post(`/v1/runs/${body.id}/fork`, apiKey, { count: 4 });
  assert.deepEqual([refused.status, refused.body.error.code], [429, 'capacity']);
  assert.equal((await post(`/v1/runs/${body.id}/fork`, apiKey, { count: 3 })).status, 201);
});

test('limits stored for one organization apply within a moment, and 0 is no limit', async () => {
  const apiKey = await harness.addOrganization();
  await override(apiKey, { vcpus: 0, rate_limit_rps: 0, sandboxes: 1 });
  await waitFor(
    'the limits to be read',
    async () => (await get('/v1/usage', apiKey)).headers.get('ratelimit') === null,
  );
  assert.equal((await create(apiKey, { vcpus: 8 })).status, 201);
  const refused = await create(apiKey);
  assert.match(refused.body.error.message, /1 live sandboxes and asks for 1 more, the limit is 1/);
});
