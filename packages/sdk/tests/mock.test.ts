/** The mock of the service, and that it answers as the real control does. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  API_KEY,
  startHarness,
  type ControlHarness,
} from '../../server/src/control/testing/control-harness.ts';
import { Coppice, CoppiceError, type CreateOptions, type Sandbox } from '../src/index.ts';
import { MockService } from '../src/mock/index.ts';
import { answerLikeGuests } from './fixtures/simple-guest.ts';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
  answerLikeGuests(harness.runner);
});
after(() => harness?.[Symbol.asyncDispose]());

function mocked(): { service: MockService; client: Coppice } {
  const service = new MockService({ onExec: ({ command }) => ({ stdout: `ran ${command}\n` }) });
  return { service, client: new Coppice({ ...service.clientOptions, maxRetries: 0 }) };
}

/** The calls are those of programs; each gets a new sandbox. The test compares their results and errors. */
const CALLS: Record<string, (client: Coppice, sandbox: Sandbox) => Promise<unknown>> = {
  'record of a create': async (_, sandbox) => sandbox.info(),
  'every option of a create': async (client) => {
    const options = { vcpus: 2, memMiB: 512, diskMiB: 64, timeout: 0, maxLifetime: 60, cwd: '/srv' };
    const more = {
      autoHibernate: true,
      labels: { a: 'b' },
      env: { A: '1' },
      expiresAt: new Date(Date.now() + 60_000),
    };
    return (await client.sandboxes.create({ image: 'python:3.12-slim', ...options, ...more })).record;
  },
  'a floating tag': (client) => client.sandboxes.create({ image: 'node:latest' }),
  'an image without a tag': (client) => client.sandboxes.create({ image: 'node' }),
  'an invalid image': (client) => client.sandboxes.create({ image: 'Node:22 slim' }),
  'a wrong number': (client) => client.sandboxes.create({ vcpus: 0 }),
  'a wrong label': (client) => client.sandboxes.create({ labels: { '-': 'x' } }),
  'a wrong type': (client) => client.sandboxes.create({ memMiB: '1' } as unknown as CreateOptions),
  'an end that has passed': (client) => client.sandboxes.create({ expiresAt: new Date(0) }),
  'a taken name': async (client, sandbox) => {
    await sandbox.update({ name: 'taken' });
    return client.sandboxes.create({ name: 'taken' });
  },
  'an unknown sandbox': (client) => client.sandboxes.get('run00000000000000009999'),
  settings: (_, sandbox) =>
    sandbox.update({ timeout: 60, labels: { a: 'b' }, maxLifetime: 3600, cwd: '/tmp' }),
  'settings that are removed': async (_, sandbox) => {
    await sandbox.update({ name: 'removed', maxLifetime: 3600, cwd: '/tmp' });
    return sandbox.update({ name: null, maxLifetime: null, cwd: null });
  },
  'a wrong setting': (_, sandbox) => sandbox.update({ timeout: -1 }),
  hibernate: (_, sandbox) => sandbox.hibernate(),
  'hibernate twice': async (_, sandbox) => {
    await sandbox.hibernate();
    return sandbox.hibernate();
  },
  'resume a running one': (_, sandbox) => sandbox.resume(),
  resume: async (_, sandbox) => {
    await sandbox.hibernate();
    return sandbox.resume();
  },
  'exec in a hibernated one': async (_, sandbox) => {
    await sandbox.hibernate();
    return sandbox.exec('true');
  },
  'exec wakes one with autoHibernate': async (_, sandbox) => {
    await sandbox.update({ autoHibernate: true });
    await sandbox.hibernate();
    return [await sandbox.exec('true'), (await sandbox.info()).status];
  },
  exec: (_, sandbox) => sandbox.exec('hello', { timeout: 5, cwd: '/', env: { A: 'b' }, stdin: 'x' }),
  'a wrong timeout': (_, sandbox) => sandbox.exec('hello', { timeout: 0 }),
  stream: async (_, sandbox) => {
    const chunks: unknown[] = [];
    for await (const chunk of sandbox.stream('hello')) chunks.push(chunk);
    return chunks;
  },
  destroy: (_, sandbox) => sandbox.destroy(),
  'destroy twice': async (_, sandbox) => {
    await sandbox.destroy();
    return sandbox.destroy();
  },
  'the record of a destroyed one': async (_, sandbox) => {
    await sandbox.destroy();
    return sandbox.info();
  },
  'settings of a destroyed one': async (_, sandbox) => {
    await sandbox.destroy();
    return sandbox.setTimeout(5);
  },
  fork: async (_, sandbox) => (await sandbox.fork(2)).map(({ record }) => record),
  'too many children': (_, sandbox) => sandbox.fork(101),
  snapshot: (_, sandbox) => sandbox.snapshot({ name: 'a', expiresIn: 3600 }),
  'two ends of a snapshot': (_, sandbox) => sandbox.snapshot({ expiresIn: 1, expiresAt: new Date() }),
  restore: async (client, sandbox) => {
    const { id } = await sandbox.snapshot();
    return (await client.sandboxes.restore(id, { name: 'restored', timeout: 5 })).record;
  },
  'restore of an unknown snapshot': (client) => client.sandboxes.restore('snap00000000000000009999'),
  'change of a snapshot': async (client, sandbox) => {
    const { id } = await sandbox.snapshot();
    return client.snapshots.update(id, { name: 'b', expiresAt: null });
  },
  'a deleted snapshot': async (client, sandbox) => {
    const { id } = await sandbox.snapshot();
    await client.snapshots.delete(id);
    return [
      await client.snapshots.get(id),
      await client.snapshots.delete(id).catch((error: CoppiceError) => error.code),
    ];
  },
  rollback: async (_, sandbox) => {
    const { id } = await sandbox.snapshot();
    return sandbox.rollback(id);
  },
  'rollback to a snapshot of another': async (client, sandbox) => {
    const other = await client.sandboxes.create();
    const { id } = await other.snapshot();
    return sandbox.rollback(id);
  },
  files: async (_, sandbox) => {
    const result = await sandbox.upload('/workspace/a', 'text', { mode: 0o755 });
    return [result, await sandbox.download('/workspace/a')];
  },
  'a missing file': (_, sandbox) => sandbox.download('/workspace/missing'),
  'a wrong mode': (_, sandbox) => sandbox.upload('/workspace/a', 'text', { mode: '9' }),
  'lists by name, label and state': async (client, sandbox) => {
    await sandbox.update({ name: 'listed', labels: { list: 'a:b' } });
    const lists = [
      { name: 'listed' },
      { labels: { list: 'a:b' } },
      { labels: { list: 'x' } },
      { name: 'listed', status: 'hibernated' },
    ];
    return Promise.all(lists.map(async (options) => (await client.sandboxes.list(options)).length));
  },
  'pages of a list': async (client, sandbox) => {
    for (let count = 0; count < 2; count += 1) await sandbox.fork(2);
    const pages: number[] = [];
    for await (const page of client.sandboxes.list({ limit: 3 }).pages()) pages.push(page.length);
    return pages;
  },
  getOrCreate: async (client, sandbox) => {
    await sandbox.update({ name: 'ensured' });
    await sandbox.hibernate();
    const found = await client.sandboxes.getOrCreate({ name: 'ensured' });
    return [found.id === sandbox.id, found.status];
  },
  'one idempotency key': async (client) => {
    const [first, second] = await Promise.all([
      client.sandboxes.create({ timeout: 5 }, { idempotencyKey: 'same' }),
      client.sandboxes.create({ timeout: 5 }, { idempotencyKey: 'same' }),
    ]);
    const other = client.sandboxes.create({ timeout: 6 }, { idempotencyKey: 'same' });
    return [first.id === second.id, await other.catch((error: CoppiceError) => [error.status, error.code])];
  },
};

/** Values that differ from run to run. Null stays null: whether a field is set is compared. */
const VARYING =
  /^(?:id|runId|parentId|teamId|image|createMs|boundTo|sizeBytes|auditKeyId|uptimeMs|billedMs|runningSince|cpuMs|memPeakBytes|costCents)$|At$/u;

function normalize(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(normalize);
  if (typeof value !== 'object' || value === null) return value;
  const fields = Object.entries(value).map(([name, field]) => [
    name,
    VARYING.test(name) && field !== null ? typeof field : normalize(field),
  ]);
  return Object.fromEntries(fields);
}

async function outcomeOf(call: (typeof CALLS)[string], client: Coppice): Promise<unknown> {
  const sandbox = await client.sandboxes.create();
  try {
    return normalize(await call(client, sandbox));
  } catch (error) {
    if (!(error instanceof CoppiceError)) throw error;
    const { status, code, detail = '' } = error;
    // The service and the mock name the field; what else their messages say may differ.
    return { status, code, field: /^\w+:/u.exec(detail)?.[0] };
  } finally {
    for await (const one of client.sandboxes.list()) await one.destroy();
  }
}

for (const [name, call] of Object.entries(CALLS)) {
  test(`the mock answers as the service: ${name}`, async () => {
    const real = new Coppice({ apiKey: API_KEY, baseUrl: harness.address, maxRetries: 0 });
    const expected = await outcomeOf(call, real);
    assert.deepEqual(await outcomeOf(call, mocked().client), expected);
  });
}

test('the mock refuses what it does not have, and says so', async () => {
  const { client } = mocked();
  const sandbox = await client.sandboxes.create();
  const refused = [
    () => client.usage(),
    () => client.images.list(),
    () => client.createDisk({ name: 'data', sizeGb: 1 }),
    () => client.sandboxes.create({ disk: 'data' }),
    () => client.networkProfiles(),
    () => sandbox.shell(),
    () => sandbox.spawn('cat'),
    () => sandbox.terminal(),
    () => sandbox.commands.start('true'),
    () => sandbox.auditHead(),
    () => sandbox.files.stat('/workspace'),
    () => sandbox.preview(80),
    () => sandbox.upload('relative', ''),
  ];
  for (const call of refused) {
    await assert.rejects(
      async () => call(),
      (error) => {
        assert.ok(error instanceof CoppiceError && error.code === 'not_mocked', String(error));
        return /^the mock of @coppice\/sdk does not have .+: test this with a real service$/u.test(
          error.message,
        );
      },
      call.toString(),
    );
  }
  const silent = new Coppice(new MockService().clientOptions);
  await assert.rejects((await silent.sandboxes.create()).exec('true'), { code: 'not_mocked' });
});

test('a test decides what commands do, and an error of its handler is the error of the call', async () => {
  const service = new MockService({
    onExec: ({ command, env, cwd, sandboxId }) => {
      if (command === 'fail') throw new Error('the handler failed');
      return { exitCode: 3, stderr: JSON.stringify({ env, cwd, sandboxId }) };
    },
  });
  const client = new Coppice(service.clientOptions);
  const sandbox = await client.sandboxes.create({ env: { A: '1', B: '1' }, cwd: '/srv' });
  const { exitCode, stderr } = await sandbox.exec('make', { env: { B: '2' } });
  assert.deepEqual(
    [exitCode, JSON.parse(stderr)],
    [3, { env: { A: '1', B: '2' }, cwd: '/srv', sandboxId: sandbox.id }],
  );
  await assert.rejects(sandbox.exec('fail'), /the handler failed/u);
  assert.deepEqual(
    service.requests.map(({ method, path }) => `${method} ${path}`),
    ['POST /v1/runs', `POST /v1/runs/${sandbox.id}/exec`, `POST /v1/runs/${sandbox.id}/exec`],
  );
});

test('a command that does not end can be aborted, and a timeout of the command is a result', async () => {
  const service = new MockService({
    onExec: ({ command }) => (command === 'hang' ? new Promise(() => undefined) : { timedOut: true }),
  });
  const sandbox = await new Coppice(service.clientOptions).sandboxes.create();
  const reason = new Error('enough');
  const signal = AbortSignal.timeout(20);
  await assert.rejects(sandbox.exec('hang', { signal }), { name: 'TimeoutError' });
  await assert.rejects(
    sandbox.exec('hang', { signal: AbortSignal.abort(reason) }),
    (error) => error === reason,
  );
  const { exitCode, timedOut } = await sandbox.exec('slow');
  assert.deepEqual([exitCode, timedOut], [124, true]);
});

test('copies have the files of the moment, and share none afterwards', async () => {
  const { client } = mocked();
  const sandbox = await client.sandboxes.create();
  await sandbox.upload('/workspace/a/b', new Blob(['before']));
  const { id } = await sandbox.snapshot();
  const [child] = await sandbox.fork();
  await sandbox.upload('/workspace/a/b', 'after');
  const restored = await client.sandboxes.restore(id);
  assert.deepEqual(
    [await child.download('/workspace/a/b'), await restored.download('/workspace/a/b')],
    ['before', 'before'],
  );
  await sandbox.rollback(id);
  assert.equal(await sandbox.download('/workspace/a/b'), 'before');
  const entries = await sandbox.listFiles('/workspace');
  assert.deepEqual(
    entries.map(({ name, type, path }) => [name, type, path]),
    [['a', 'dir', '/workspace/a']],
  );
  assert.deepEqual(
    (await sandbox.listFiles('/workspace/a')).map(({ size, mode }) => [size, mode]),
    [[6, '0644']],
  );
});

test('a test can make the next request fail, and the client retries what it retries with the service', async () => {
  const { service, client } = mocked();
  service.failNext('credit_exhausted', 'no credit');
  await assert.rejects(client.sandboxes.create(), {
    status: 402,
    code: 'credit_exhausted',
    detail: 'no credit',
  });
  assert.equal((await client.sandboxes.list()).length, 0);
  const retrying = new Coppice(service.clientOptions);
  service.failNext('unavailable');
  assert.equal((await retrying.sandboxes.create()).status, 'running');
  assert.equal((await retrying.sandboxes.list()).length, 1);
});

test('another key than that of the mock is refused', async () => {
  const { service } = mocked();
  const client = new Coppice({ ...service.clientOptions, apiKey: API_KEY });
  await assert.rejects(async () => client.sandboxes.list(), { status: 401, code: 'unauthorized' });
});
