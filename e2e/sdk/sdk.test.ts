import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { Coppice, Sandbox } from '../../packages/sdk/src/index.ts';
import { connect, SMALL } from '../fixtures/api/client.ts';
import { API_KEY } from '../fixtures/service/service.ts';
import { shared } from '../fixtures/service/shared.ts';

function uniqueLabels(): Record<string, string> {
  return { 'e2e-sdk': randomBytes(6).toString('hex') };
}

/** Sets variables while `work` runs; undefined removes one. */
async function withEnvironment<T>(
  variables: Record<string, string | undefined>,
  work: () => Promise<T>,
): Promise<T> {
  const apply = (values: Record<string, string | undefined>): void => {
    for (const [name, value] of Object.entries(values)) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  };
  const saved = Object.fromEntries(Object.keys(variables).map((name) => [name, process.env[name]]));
  apply(variables);
  try {
    return await work();
  } finally {
    apply(saved);
  }
}

test('the client creates with default options, finds, and destroys with the usage', async () => {
  const client = await connect();
  const sandbox = await client.sandboxes.create();
  const { id, record } = sandbox;
  assert.match(record.image, /^docker\.io\/library\/node:22-slim@sha256:/u);
  assert.deepEqual(
    [record.status, record.vcpus, record.memMiB, record.diskMiB, record.timeout, record.labels],
    ['running', 1, 1024, 4096, 300, {}],
  );
  assert.ok(record.createMs! > 0);
  const found = await client.sandboxes.get(id);
  assert.deepEqual([found?.id, found?.status], [id, 'running']);
  assert.equal(await client.sandboxes.get('run00000000000000000000'), null);

  const { status, ...used } = await sandbox.destroy();
  assert.equal(status, 'destroyed');
  assert.deepEqual(Object.keys(used).toSorted(), ['costCents', 'cpuMs', 'memPeakBytes', 'uptimeMs']);
  for (const [field, value] of Object.entries(used))
    assert.ok(Number(value) > 0, `${field} is ${Number(value)}`);
  assert.equal(sandbox.status, 'destroyed');
  assert.ok((await sandbox.info()).endedAt !== null);
  await assert.rejects(sandbox.destroy(), { status: 409, code: 'invalid_state' });
});

test('the client creates with every option, and the record shows them', async () => {
  const client = await connect();
  const labels = uniqueLabels();
  const options = { vcpus: 2, memMiB: 512, diskMiB: 1024, timeout: 77, maxLifetime: 900, labels };
  await using sandbox = await client.sandboxes.create({ image: 'coppice/base:1', ...options });
  const info = await sandbox.info();
  const shown = Object.fromEntries(
    Object.keys(options).map((name) => [name, info[name as keyof typeof info]]),
  );
  assert.deepEqual(shown, options);
  assert.ok(Date.parse(info.expiresAt!) > Date.now());
  assert.equal((await sandbox.exec('nproc')).stdout, '2\n');
});

test('the client lists by label, as a whole or page by page', async () => {
  const client = await connect();
  const labels = uniqueLabels();
  await using first = await client.sandboxes.create({ ...SMALL, labels });
  await using second = await client.sandboxes.create({ ...SMALL, labels: { ...labels, nth: '2' } });
  const listed = await client.sandboxes.list({ labels });
  assert.deepEqual(listed.map(({ id }) => id).toSorted(), [first.id, second.id].toSorted());
  const narrowed: string[] = [];
  for await (const { id } of client.sandboxes.list({ labels: { ...labels, nth: '2' } })) narrowed.push(id);
  assert.deepEqual(narrowed, [second.id]);
  assert.equal((await client.sandboxes.list({ labels, limit: 1 })).length, 1);
  await first.destroy();
  assert.deepEqual((await client.sandboxes.list({ labels, status: 'destroyed' }))[0]?.id, first.id);
});

test('await using destroys the sandbox at the end of its block', async () => {
  const client = await connect();
  let id: string;
  {
    await using sandbox = await client.sandboxes.create(SMALL);
    ({ id } = sandbox);
    assert.equal((await client.sandboxes.get(id))?.status, 'running');
  }
  assert.equal((await client.sandboxes.get(id))?.status, 'destroyed');
});

test('the client sets the idle timeout, and 0 disables it', async () => {
  const client = await connect();
  await using sandbox = await client.sandboxes.create(SMALL);
  const never = await sandbox.setTimeout(0);
  assert.deepEqual([never.timeout, never.expiresAt], [0, null]);
  const later = await sandbox.setTimeout(120);
  const leftMs = Date.parse(later.expiresAt!) - Date.now();
  assert.ok(leftMs > 110_000 && leftMs <= 121_000, `${leftMs} ms left`);
  assert.deepEqual([later.timeout, sandbox.record.timeout], [120, 120]);
  await assert.rejects(sandbox.setTimeout(-1), { status: 400 });
});

test('one idempotency key makes one sandbox', async () => {
  const client = await connect();
  const labels = uniqueLabels();
  const idempotencyKey = randomBytes(8).toString('hex');
  const create = () => client.sandboxes.create({ ...SMALL, labels }, { idempotencyKey });
  const [first, second] = await Promise.all([create(), create()]);
  assert.equal(second.id, first.id);
  assert.equal((await create()).id, first.id);
  assert.equal((await client.sandboxes.list({ labels })).length, 1);
  const other = client.sandboxes.create({ ...SMALL, labels, timeout: 9 }, { idempotencyKey });
  await assert.rejects(other, { status: 422 });
  await first.destroy();
});

test('an aborted create rejects with the reason, and its key still leads to the one sandbox', async () => {
  const { service } = await shared();
  const client = await connect();
  const labels = uniqueLabels();
  // A unique shape: its template is built first, which leaves time to abort.
  const options = { image: 'coppice/base:1', memMiB: 288, labels };
  const idempotencyKey = randomBytes(8).toString('hex');
  const controller = new AbortController();
  const reason = new Error('changed my mind');
  const create = client.sandboxes.create(options, { idempotencyKey, signal: controller.signal });
  const rejected = assert.rejects(create, (error) => error === reason);
  const list = async () => client.sandboxes.list({ labels });
  await service.waitFor('the record', 10_000, async () => (await list()).length === 1);
  controller.abort(reason);
  await rejected;
  const sandbox = await client.sandboxes.create(options, { idempotencyKey });
  assert.deepEqual(
    (await list()).map(({ id }) => id),
    [sandbox.id],
  );
  assert.equal((await sandbox.exec('echo here')).stdout, 'here\n');
  await sandbox.destroy();
  const early = client.sandboxes.create(SMALL, { signal: AbortSignal.abort(reason) });
  await assert.rejects(early, (error) => error === reason);
});

test('the client takes the key from SANDBOX_API_KEY, and without a key construction fails', async () => {
  const { service } = await shared();
  const variables = { SANDBOX_API_KEY: API_KEY, SANDBOX_BASE_URL: service.address };
  await withEnvironment(variables, async () => {
    await using sandbox = await Sandbox.create(SMALL);
    assert.equal((await Sandbox.get(sandbox.id))?.id, sandbox.id);
  });
  await withEnvironment({ ...variables, SANDBOX_API_KEY: undefined }, async () => {
    assert.throws(() => new Coppice(), /SANDBOX_API_KEY/u);
    await assert.rejects(Sandbox.create(SMALL), /SANDBOX_API_KEY/u);
  });
});

test('a wrong key gives 401', async () => {
  const { service } = await shared();
  for (const apiKey of ['nonsense', `cop_live_us_${'A'.repeat(40)}`]) {
    const client = new Coppice({ baseUrl: service.address, apiKey });
    await assert.rejects(client.sandboxes.create(SMALL), { status: 401, code: 'unauthorized' });
    await assert.rejects(client.sandboxes.get('run00000000000000000000'), { status: 401 });
  }
});

test('the client prepares and lists images', async () => {
  const client = await connect();
  const image = await client.images.build('coppice/base:1');
  assert.equal(image.status, 'ready');
  assert.ok((await client.images.list()).some(({ digest }) => digest === image.digest));
});
