/** New values of named secrets in sandboxes: running, hibernated, being started or copied, and across outages. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { sql } from 'kysely';
import { GrantStore } from '../egress/grant-store.ts';
import {
  startHarness,
  startSpawnedHarness,
  waitFor,
  type Answer,
  type ControlHarness,
} from '../testing/control-harness.ts';
import { spawnControl } from '../testing/controls/spawn-control.ts';
import { verifyLog } from '../testing/verify-log.ts';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(() => {
  harness.runner.onEgress = () => undefined;
  harness.runner.onCreate = () => undefined;
  harness.runner.captures.reset();
});

let count = 0;
/** Stores a secret, and returns its name and credentials that name it. */
async function store(value = 'v1', at = harness) {
  count += 1;
  const name = `secret-${count}`;
  assert.equal((await put(name, value, at)).status, 200);
  return { name, credentials: { openai: { secret: name } } };
}

const put = (name: string, value: string, at = harness): Promise<Answer> =>
  at.call('PUT', `/v1/secrets/${name}`, { body: { value } });
const act = (id: string, what: string, body: object = {}): Promise<Answer> =>
  harness.call('POST', `/v1/runs/${id}/${what}`, { body });
const setCredentials = (id: string, credentials: object): Promise<Answer> =>
  harness.call('PUT', `/v1/runs/${id}/credentials`, { body: { credentials } });
const get = async (name: string, at = harness) => (await at.call('GET', `/v1/secrets/${name}`)).body;
const secretOf = (id: string, at = harness) => at.runner.egress.get(id)?.grants[0]?.secret;

/** The runner answers what it is sent only when `release` is called. `sent` resolves when something was sent. */
function holdEgress(): { sent: Promise<void>; release: () => void } {
  const sent = Promise.withResolvers<void>();
  const held = Promise.withResolvers<void>();
  harness.runner.onEgress = () => {
    sent.resolve();
    return held.promise;
  };
  return { sent: sent.promise, release: held.resolve };
}

/** Returns the versions in the entries `credentials.rotated`. */
async function listRotations(id: string, at = harness): Promise<unknown[]> {
  const text = await (await at.fetch('GET', `/v1/runs/${id}/audit`)).text();
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
    .filter(({ event }) => event === 'credentials.rotated')
    .map(({ data }) => data.credentials);
}

async function expectCurrent(name: string, id: string, value: string, at = harness): Promise<void> {
  await waitFor(`the runner to have ${value}`, () => secretOf(id, at) === value);
  await waitFor('no outdated sandbox', async () => (await get(name, at)).outdated_sandboxes === 0);
}

test('a new value is in force in running sandboxes when it is answered, and is in their logs once', async () => {
  const { name, credentials } = await store();
  const both = { ...credentials, anthropic: { secret: name }, github: 'own' };
  const [one, two] = [await harness.create({ credentials: both }), await harness.create({ credentials })];
  const other = await harness.create({ credentials: { openai: 'own' } });
  const told: string[] = [];
  harness.runner.onEgress = (id) => void told.push(id);
  const { status, body } = await put(name, 'v2');
  assert.deepEqual([status, body.version, body.sandboxes, body.outdated_sandboxes], [200, 2, 2, 0]);
  assert.deepEqual(told.toSorted(), [one.id, two.id].toSorted(), 'no other sandbox is touched');
  const grants = harness.runner.egress
    .get(one.id)
    ?.grants.map(({ service, secret }) => [service.name, secret]);
  assert.deepEqual(grants, [
    ['anthropic', 'v2'],
    ['github', 'own'],
    ['openai', 'v2'],
  ]);
  assert.deepEqual(await listRotations(one.id), [
    [
      { service: 'anthropic', secret: name, version: 2 },
      { service: 'openai', secret: name, version: 2 },
    ],
  ]);
  await put(name, 'v3');
  assert.deepEqual(await listRotations(two.id), [
    [{ service: 'openai', secret: name, version: 2 }],
    [{ service: 'openai', secret: name, version: 3 }],
  ]);
  assert.deepEqual(await listRotations(other.id), []);
  await verifyLog(harness, two.id);
});

test('a hibernated sandbox has the new value from its resume', async () => {
  const { name, credentials } = await store();
  const { id } = await harness.create({ credentials });
  await act(id, 'hibernate');
  harness.runner.egress.delete(id);
  assert.equal((await put(name, 'v2')).body.outdated_sandboxes, 0);
  await put(name, 'v3');
  assert.equal(harness.runner.egress.has(id), false);
  assert.equal((await act(id, 'resume')).status, 200);
  assert.equal(secretOf(id), 'v3');
  assert.equal((await get(name)).outdated_sandboxes, 0);
  assert.deepEqual(await listRotations(id), [[{ service: 'openai', secret: name, version: 3 }]]);
});

test('children of a fork follow the secret, and a restore has the one that it names', async () => {
  const { name, credentials } = await store();
  const { id } = await harness.create({ credentials });
  const [child] = (await act(id, 'fork')).body;
  const { id: snapshot_id } = (await act(id, 'snapshot')).body;
  await put(name, 'v2');
  assert.deepEqual([secretOf(id), secretOf(child.id)], ['v2', 'v2']);
  const restore = async (more: object) =>
    (await harness.call('POST', '/v1/runs/restore', { body: { snapshot_id, ...more } })).body.id;
  assert.equal(secretOf(await restore({})), undefined);
  const restored = await restore({ credentials });
  assert.equal(secretOf(restored), 'v2');
  assert.deepEqual(await listRotations(restored), [], 'it had no earlier value');
  assert.equal((await put(name, 'v3')).body.sandboxes, 3);
  assert.equal(secretOf(restored), 'v3');
});

test('a runner that refuses the new value is sent it again, and the answer counts the sandbox', async () => {
  const { name, credentials } = await store();
  const { id } = await harness.create({ credentials });
  harness.runner.onEgress = () => {
    throw new AppError('unavailable', 'not now');
  };
  const { status, body } = await put(name, 'v2');
  assert.deepEqual([status, body.version, body.outdated_sandboxes], [200, 2, 1]);
  assert.equal(secretOf(id), 'v1');
  assert.deepEqual(await listRotations(id), [], 'the log names what is in force');
  harness.runner.onEgress = () => undefined;
  await expectCurrent(name, id, 'v2');
  assert.equal((await listRotations(id)).length, 1);
});

test('a value that is stored while the runner is away reaches it when it is back', async () => {
  const { name, credentials } = await store();
  const { id } = await harness.create({ credentials });
  await harness.runner.stop();
  const { status, body } = await put(name, 'v2');
  assert.deepEqual([status, body.outdated_sandboxes], [200, 1]);
  harness.runner.egress.clear();
  await harness.runner.start();
  await expectCurrent(name, id, 'v2');
  assert.equal((await listRotations(id)).length, 1);
});

test('a PUT does not wait for a runner that does not answer', { timeout: 60_000 }, async () => {
  const { name, credentials } = await store();
  const { id } = await harness.create({ credentials });
  const answered = Promise.withResolvers<void>();
  harness.runner.onEgress = () => answered.promise;
  const startedAt = performance.now();
  const { status, body } = await put(name, 'v2');
  assert.deepEqual([status, body.outdated_sandboxes], [200, 1]);
  assert.ok(performance.now() - startedAt < 9_000);
  answered.resolve();
  await expectCurrent(name, id, 'v2');
});

test('a value that is stored while a sandbox starts is in force soon after', async () => {
  const { name, credentials } = await store();
  const begun = Promise.withResolvers<string>();
  const finish = Promise.withResolvers<void>();
  harness.runner.onCreate = (id) => {
    begun.resolve(id);
    return finish.promise;
  };
  const creating = harness.create({ credentials });
  const id = await begun.promise;
  assert.equal((await put(name, 'v2')).body.outdated_sandboxes, 1);
  finish.resolve();
  assert.equal((await creating).id, id);
  await expectCurrent(name, id, 'v2');
  assert.equal((await listRotations(id)).length, 1);
});

test('a value that is stored during a fork or a resume is in force soon after', async () => {
  const { name, credentials } = await store();
  const { id } = await harness.create({ credentials });
  const forked = Promise.withResolvers<void>();
  harness.runner.captures.onFork = () => forked.promise;
  const fork = act(id, 'fork');
  await harness.waitForRecord(id, ({ operation }) => operation === 'forking');
  await waitFor('the grants of the child', async () => (await get(name)).sandboxes === 2);
  await put(name, 'v2');
  forked.resolve();
  const [child] = (await fork).body;
  for (const one of [id, child.id]) await expectCurrent(name, one, 'v2');
  await act(id, 'hibernate');
  const restored = Promise.withResolvers<void>();
  const asked = Promise.withResolvers<void>();
  harness.runner.captures.onRestore = () => {
    asked.resolve();
    return restored.promise;
  };
  const resume = act(id, 'resume');
  await asked.promise;
  await put(name, 'v3');
  restored.resolve();
  assert.equal((await resume).status, 200);
  const { outdated_sandboxes } = await get(name);
  assert.deepEqual([secretOf(id), outdated_sandboxes], ['v3', 0], 'when the resume is answered');
});

test('a value that is stored after a resume whose answer was lost is in force when the sandbox runs', async () => {
  await using other = await startHarness({ reconcileIntervalMs: 1500 });
  for (const isRepeated of [true, false]) {
    const { name, credentials } = await store('v1', other);
    const { id } = await other.create({ credentials });
    const resume = () => other.call('POST', `/v1/runs/${id}/resume`, { body: {} });
    await other.call('POST', `/v1/runs/${id}/hibernate`, { body: {} });
    other.runner.captures.beforeAnswer = (what) => {
      if (what === 'restore') throw new AppError('internal', 'the answer is lost');
    };
    assert.equal((await resume()).status, 500);
    other.runner.captures.reset();
    assert.equal(secretOf(id, other), 'v1', 'the VM runs');
    await put(name, 'v2', other);
    if (isRepeated) assert.equal((await resume()).status, 200);
    else await other.waitForRecord(id, ({ status }) => status === 'running');
    if (isRepeated) assert.equal(secretOf(id, other), 'v2', 'when the resume is answered');
    await expectCurrent(name, id, 'v2', other);
    assert.deepEqual(await listRotations(id, other), [[{ service: 'openai', secret: name, version: 2 }]]);
  }
});

test('credentials that are set while their secret changes end with its last value', async () => {
  const { name, credentials } = await store();
  const { id } = await harness.create();
  const { sent, release } = holdEgress();
  const setting = setCredentials(id, credentials);
  await sent;
  assert.equal((await put(name, 'v2')).body.sandboxes, 0, 'its credentials are not stored yet');
  release();
  assert.equal((await setting).status, 200);
  await expectCurrent(name, id, 'v2');
});

test('values that are stored at once have versions of their own, and the last one stays', async () => {
  const { name, credentials } = await store();
  const { id } = await harness.create({ credentials });
  const answers = await Promise.all(Array.from({ length: 8 }, (_, index) => put(name, `w${index}`)));
  assert.ok(answers.every(({ status }) => status === 200));
  const { version, outdated_sandboxes } = await get(name);
  assert.deepEqual([version, outdated_sandboxes], [9, 0]);
  const last = secretOf(id);
  await act(id, 'hibernate');
  await act(id, 'resume');
  assert.equal(secretOf(id), last, 'the runner had the stored value');
});

test('a new value or a deletion waits for credentials that are being stored, and then finds them', async () => {
  const { name } = await store();
  const { id } = await harness.create();
  await using db = harness.openDatabase();
  const secret = await db
    .selectFrom('named_secrets')
    .select('id')
    .where('name', '=', name)
    .executeTakeFirst();
  const grant = { service: 'openai', endpoints: null, sealed_secret: null, secret_version: 1 };
  const row = { ...grant, sandbox_id: id, secret_id: secret?.id ?? '', updated_at: 0 };
  const isWaiting = async (): Promise<boolean> => {
    const { rows } = await sql`SELECT FROM pg_stat_activity
      WHERE datname = current_database() AND wait_event_type = 'Lock'`.execute(db);
    return rows.length > 0;
  };
  const storeDuring = async (begin: () => Promise<Answer>): Promise<Answer> => {
    // In a list, as the answer comes only after the transaction.
    const [answer] = await db.transaction().execute(async (transaction) => {
      await new GrantStore(db).replace(transaction, id, [row]);
      const answers = [begin()] as const;
      await waitFor('the lock', isWaiting);
      return answers;
    });
    return answer;
  };
  const stored = await storeDuring(() => put(name, 'v2'));
  assert.deepEqual([stored.body.sandboxes, stored.body.outdated_sandboxes], [1, 0]);
  assert.equal(secretOf(id), 'v2');
  await setCredentials(id, {});
  const refused = await storeDuring(() => harness.call('DELETE', `/v1/secrets/${name}`));
  assert.deepEqual([refused.status, refused.body.error.code], [409, 'secret_in_use']);
});

test('credentials whose secret is deleted before they are stored are refused, and the old ones stay', async () => {
  const { name, credentials } = await store();
  const { id } = await harness.create({ credentials: { openai: 'own' } });
  const { sent, release } = holdEgress();
  const setting = setCredentials(id, credentials);
  await sent;
  assert.equal((await harness.call('DELETE', `/v1/secrets/${name}`)).status, 204);
  release();
  const { status, body } = await setting;
  assert.deepEqual([status, body.error.code], [400, 'invalid_request']);
  assert.equal(body.error.message, 'credentials: a secret that they name was deleted meanwhile');
  await waitFor('the old credentials', () => secretOf(id) === 'own');
});

test('a control that is killed between a new value and the sandboxes sends it after its start', async () => {
  await using own = await startSpawnedHarness();
  const { name, credentials } = await store('v1', own);
  const { id } = await own.create({ credentials });
  const killed = Promise.withResolvers<void>();
  const asked = Promise.withResolvers<void>();
  own.runner.onEgress = () => {
    asked.resolve();
    return killed.promise;
  };
  const cut = put(name, 'v2', own).catch(() => 'cut');
  await asked.promise;
  await own.spawned.kill();
  assert.equal(await cut, 'cut');
  killed.reject(new AppError('unavailable', 'the host is busy'));
  own.runner.onEgress = () => undefined;
  assert.equal(secretOf(id, own), 'v1');
  own.spawned = await spawnControl(own.config);
  await waitFor('healthz', async () => (await own.call('GET', '/healthz')).status === 200);
  await expectCurrent(name, id, 'v2', own);
  assert.deepEqual((await get(name, own)).version, 2);
  assert.deepEqual(await listRotations(id, own), [[{ service: 'openai', secret: name, version: 2 }]]);
  await verifyLog(own, id);
});
