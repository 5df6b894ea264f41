/** Forks: properties of the children, children that fail, and the parent meanwhile. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, afterEach, before, test } from 'node:test';
import { AppError, type SandboxRecord } from '@coppice/contract';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { forceState } from '../testing/sandbox-row.ts';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
afterEach(() => harness.runner.captures.reset());

interface ForkOptions {
  body?: object;
  key?: string;
}

const fork = (id: string, { body, key }: ForkOptions = {}) =>
  harness.call('POST', `/v1/runs/${id}/fork`, {
    ...(body === undefined ? {} : { body }),
    ...(key === undefined ? {} : { headers: { 'idempotency-key': key } }),
  });
const exec = (id: string) => harness.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'true' } });
const get = async (id: string) => (await harness.call('GET', `/v1/runs/${id}`)).body as SandboxRecord;
const forks = () => harness.runner.requests.filter((request) => request.endsWith('/fork')).length;

test('without a body one child is made; it inherits everything from its parent except the age', async () => {
  const parent = await harness.create({
    vcpus: 2,
    mem_mib: 512,
    timeout: 77,
    max_lifetime: 900,
    expires_at: new Date(Date.now() + 900_000).toISOString(),
    labels: { team: 'a' },
    auto_hibernate: true,
  });
  const answer = await fork(parent.id);
  assert.equal(answer.status, 201);
  const [child, ...others] = answer.body as SandboxRecord[];
  assert.ok(child);
  assert.deepEqual(others, []);
  assert.match(child.id, /^run[0-9a-f]{20}$/);
  assert.equal(child.parent_id, parent.id);
  for (const field of [
    'image',
    'vcpus',
    'mem_mib',
    'disk_mib',
    'timeout',
    'max_lifetime',
    'ends_at',
    'auto_hibernate',
  ] as const)
    assert.equal(child[field], parent[field], field);
  assert.deepEqual(child.labels, { team: 'a' });
  assert.equal(child.status, 'running');
  assert.equal(child.operation, null);
  assert.ok(child.create_ms !== null && child.created_at >= parent.created_at);
  assert.equal((await exec(child.id)).status, 200);
  assert.equal((await exec(parent.id)).status, 200);
});

test('children are returned in the order of the request to the runner, and can be forked themselves', async () => {
  const parent = await harness.create();
  const { status, body } = await fork(parent.id, { body: { count: 5 } });
  assert.equal(status, 201);
  const ids = (body as SandboxRecord[]).map((child) => child.id);
  assert.equal(new Set(ids).size, 5);
  const grandchildren = (await fork(ids[4] ?? '', { body: { count: 2 } })).body as SandboxRecord[];
  assert.deepEqual(
    grandchildren.map((child) => child.parent_id),
    [ids[4], ids[4]],
  );
  assert.equal((await harness.call('DELETE', `/v1/runs/${parent.id}`)).status, 200);
  for (const id of ids) assert.equal((await exec(id)).status, 200);
});

test('a child that fails has its error in its place, and the answer is 207', async () => {
  const parent = await harness.create();
  harness.runner.captures.onChild = (_id, index) => {
    if (index === 1) throw new AppError('capacity', 'no room for this one');
  };
  const { status, body } = await fork(parent.id, { body: { count: 3 } });
  assert.equal(status, 207);
  assert.equal(body[0].status, 'running');
  assert.equal(body[1].error.code, 'capacity');
  assert.equal(body[1].error.message, 'no room for this one');
  assert.equal(body[2].status, 'running');
  const family = (await harness.call('GET', `/v1/runs/${parent.id}/tree`)).body;
  assert.deepEqual(family.nodes.map((node: { status: string }) => node.status).toSorted(), [
    'failed',
    'running',
    'running',
    'running',
  ]);
});

test('if no child runs, the answer is the error of the first', async () => {
  const parent = await harness.create();
  harness.runner.captures.onChild = () => {
    throw new AppError('capacity', 'no room');
  };
  const each = await fork(parent.id, { body: { count: 2 } });
  assert.equal(each.status, 429);
  harness.runner.captures.reset();
  harness.runner.captures.onFork = () => {
    throw new AppError('guest_unreachable', 'the guest could not be frozen');
  };
  const whole = await fork(parent.id, { body: { count: 2 } });
  assert.equal(whole.status, 502);
  assert.equal((await get(parent.id)).status, 'running');
  assert.equal((await exec(parent.id)).status, 200);
});

test('during a fork the sandbox can be used and its timer set, and a destroy waits', async () => {
  const parent = await harness.create();
  const gate = Promise.withResolvers<void>();
  harness.runner.captures.onFork = () => gate.promise;
  const forking = fork(parent.id);
  await harness.waitForRecord(parent.id, (record) => record.operation === 'forking');
  assert.equal((await exec(parent.id)).status, 200);
  const patched = await harness.call('PATCH', `/v1/runs/${parent.id}`, { body: { timeout: 50 } });
  assert.equal(patched.body.timeout, 50);
  const destroying = harness.call('DELETE', `/v1/runs/${parent.id}`);
  gate.resolve();
  assert.equal((await forking).status, 201);
  assert.equal((await destroying).status, 200);
  assert.equal((await get(parent.id)).status, 'destroyed');
});

test('a sandbox that is being forked is not idle', async () => {
  const parent = await harness.create({ timeout: 1 });
  const gate = Promise.withResolvers<void>();
  harness.runner.captures.onFork = () => gate.promise;
  const forking = fork(parent.id);
  const { expires_at } = await harness.waitForRecord(parent.id, (record) => record.operation === 'forking');
  assert.equal(expires_at, null);
  await waitFor('its timeout to pass', () => Date.now() > Date.parse(parent.expires_at ?? '') + 100);
  gate.resolve();
  assert.equal((await forking).status, 201);
});

test('a child that is destroyed while it is being created stays destroyed, and its VM is removed', async () => {
  const parent = await harness.create();
  const gate = Promise.withResolvers<void>();
  harness.runner.captures.onFork = () => gate.promise;
  const forking = fork(parent.id, { body: { count: 2 } });
  let child = '';
  await waitFor('the children', async () => {
    const creating = (await harness.call('GET', '/v1/runs?status=creating')).body as SandboxRecord[];
    child = creating[0]?.id ?? '';
    return creating.length === 2;
  });
  assert.equal((await harness.call('DELETE', `/v1/runs/${child}`)).status, 200);
  gate.resolve();
  const { status, body } = await forking;
  assert.equal(status, 207);
  assert.equal(body.filter((one: object) => 'error' in one).length, 1);
  await waitFor('its VM to be removed', () => !harness.runner.vms.has(child));
  assert.equal((await get(child)).status, 'destroyed');
});

test('children lost before their start is committed are reported as lost, not billed, and can be retried', async () => {
  const parent = await harness.create();
  const lost: string[] = [];
  harness.runner.captures.onChild = (id) => void lost.push(id);
  harness.runner.captures.beforeAnswer = async () => {
    for (const id of lost) {
      harness.runner.endVm(id, 'vmm_lost');
      await harness.waitForRecord(id, (record) => record.status === 'failed');
    }
  };
  const key = randomUUID();
  const refused = await fork(parent.id, { body: { count: 2 }, key });
  assert.equal(refused.status, 502);
  assert.match(refused.body.error.message, /lost while it was being created \(vm_lost\); try again/u);
  assert.equal(lost.length, 2);
  for (const id of lost) assert.equal((await get(id)).status_reason, 'vm_lost');
  await using db = harness.openDatabase();
  const costs = await db
    .selectFrom('sandboxes')
    .select(['uptime_ms', 'billed_ms', 'cost_units'])
    .where('id', 'in', lost)
    .execute();
  const nothing = { uptime_ms: 0, billed_ms: 0, cost_units: '0' };
  assert.deepEqual(costs, [nothing, nothing]);
  harness.runner.captures.reset();
  const again = await fork(parent.id, { body: { count: 2 }, key });
  assert.equal(again.status, 201);
  assert.equal((again.body as SandboxRecord[]).filter(({ status }) => status === 'running').length, 2);
});

test('the end of a guest that powers off during a long fork is committed at once', async () => {
  const parent = await harness.create();
  const gate = Promise.withResolvers<void>();
  harness.runner.captures.onFork = () => gate.promise;
  const forking = fork(parent.id);
  await harness.waitForRecord(parent.id, (record) => record.operation === 'forking');
  harness.runner.endVm(parent.id, 'guest_shutdown');
  await harness.waitForRecord(parent.id, (record) => record.status_reason === 'guest_shutdown');
  await waitFor('the end to be acknowledged', () => harness.runner.ends.size === 0);
  gate.resolve();
  await forking;
});

test('a fork of a destroyed sandbox is 409, of an unknown one 404, and with no or too many children 400', async () => {
  const { id } = await harness.create();
  for (const count of [0, 101, 1.5])
    assert.equal((await fork(id, { body: { count } })).status, 400, String(count));
  await harness.call('DELETE', `/v1/runs/${id}`);
  assert.equal((await fork(id)).status, 409);
  assert.equal((await fork(`run${'0'.repeat(20)}`)).status, 404);
});

test('a fork beyond the limit of live sandboxes is refused as a whole and creates nothing', async () => {
  await using small = await startHarness({ sandboxesPerOrganization: 3 });
  const { id } = await small.create();
  const path = `/v1/runs/${id}/fork`;
  const refused = await small.call('POST', path, { body: { count: 3 } });
  assert.equal(refused.status, 429);
  assert.match(refused.body.error.message, /1 live sandboxes and asks for 3 more, the limit is 3/);
  assert.equal((await small.call('POST', path, { body: { count: 2 } })).status, 201);
  assert.equal(small.runner.vms.size, 3);
});

test('the same Idempotency-Key gets the same children, also after a restart of the service', async () => {
  const { id } = await harness.create();
  const first = await fork(id, { body: { count: 2 }, key: 'twins' });
  const made = forks();
  const again = await fork(id, { body: { count: 2 }, key: 'twins' });
  assert.deepEqual(again.body, first.body);
  assert.equal(again.headers.get('idempotency-replayed'), 'true');
  assert.equal((await fork(id, { body: { count: 3 }, key: 'twins' })).status, 422);
  {
    await using db = harness.openDatabase();
    const unheard = { status_code: null, answer: null };
    await db.updateTable('idempotency_keys').set(unheard).where('key', '=', 'twins').execute();
  }
  await harness.stopControl();
  await harness.startControl();
  const found = await fork(id, { body: { count: 2 }, key: 'twins' });
  assert.equal(found.status, 201);
  const idsOf = (body: SandboxRecord[]) => body.map((child) => child.id);
  assert.deepEqual(idsOf(found.body), idsOf(first.body));
  assert.equal(forks(), made);
  const other = await harness.create();
  assert.equal((await fork(other.id, { body: { count: 2 }, key: 'twins' })).status, 201);
});

test('a retry of a fork with a mixed answer gets the same answer', async () => {
  const { id } = await harness.create();
  harness.runner.captures.onChild = (_id, index) => {
    if (index === 0) throw new AppError('capacity', 'no room');
  };
  const options = { body: { count: 2 }, key: 'mixed' };
  const first = await fork(id, options);
  harness.runner.captures.reset();
  const again = await fork(id, options);
  assert.equal(again.status, 207);
  assert.deepEqual(again.body, first.body);
});

test('the caller does not see a restart of the runner during a fork', async () => {
  const { id } = await harness.create();
  harness.runner.captures.onFork = async () => {
    harness.runner.captures.reset();
    await harness.runner.stop();
    await harness.runner.start();
  };
  assert.equal((await fork(id, { body: { count: 2 } })).status, 201);
});

test('children whose control died become failed and leave no VM, and the same key forks again', async () => {
  const { id } = await harness.create();
  const first = await fork(id, { body: { count: 2 }, key: 'killed' });
  const ids = (first.body as SandboxRecord[]).map((child) => child.id);
  {
    await using db = harness.openDatabase();
    await db
      .updateTable('sandboxes')
      .set(forceState({ status: 'creating' }))
      .where('id', 'in', ids)
      .execute();
    const unheard = { status_code: null, answer: null };
    await db.updateTable('idempotency_keys').set(unheard).where('key', '=', 'killed').execute();
  }
  await harness.stopControl();
  await harness.startControl();
  for (const child of ids) {
    const record = await harness.waitForRecord(child, ({ status }) => status === 'failed');
    assert.equal(record.status_reason, 'control_restarted');
    assert.ok(!harness.runner.vms.has(child));
  }
  assert.equal((await get(id)).status, 'running');
  const again = await fork(id, { body: { count: 2 }, key: 'killed' });
  assert.equal(again.status, 201);
  assert.ok((again.body as SandboxRecord[]).every((child) => !ids.includes(child.id)));
});
