/** Environment and directory of a sandbox's processes, through the real API and database. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { CANARY, findCanary } from '../testing/canary.ts';
import { startHarness, waitFor, type Answer, type ControlHarness } from '../testing/control-harness.ts';
import type { FakeCommand, FakeProcess } from '../testing/fakes/fake-runner.ts';
import { SocketClient } from '../testing/requests/socket-client.ts';

const ENV = { TOKEN: CANARY, OTHER: 'é' };

let harness: ControlHarness;
let heads: Pick<FakeCommand['head'], 'cwd' | 'env'>[] = [];
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(() => {
  heads = [];
  harness.runner.onExec = ({ head, exit }) => {
    heads.push(head);
    exit(0);
  };
});

const call = (method: string, path: string, body?: object): Promise<Answer> =>
  harness.call(method, path, body === undefined ? {} : { body });

/** Returns directory and variables that a command gets. */
async function exec(id: string, request: object = {}): Promise<[string | undefined, unknown]> {
  const answer = await call('POST', `/v1/runs/${id}/exec`, { command: 'x', ...request });
  assert.equal(answer.status, 200, JSON.stringify(answer.body));
  const head = heads.at(-1);
  return [head?.cwd, head?.env];
}

async function restart(): Promise<void> {
  await harness.stopControl();
  await harness.startControl();
}

test('commands, shells and terminals get the variables and the directory of their sandbox', async () => {
  const { id, cwd } = await harness.create({ env: ENV, cwd: '/srv' });
  assert.equal(cwd, '/srv');
  assert.deepEqual(await exec(id), ['/srv', ENV]);
  await (await harness.fetch('POST', `/v1/runs/${id}/exec/stream`, { body: { command: 'x' } })).text();
  harness.runner.startsAtHead = true;
  const socket = new SocketClient(harness, `/v1/runs/${id}/exec/ws?command=x`);
  await socket.closed;
  harness.runner.startsAtHead = false;
  assert.deepEqual(
    heads.map((head) => [head.cwd, head.env]),
    Array.from({ length: 3 }, () => ['/srv', ENV]),
  );
  for (const [what, hook] of [
    ['shell', 'onShell'],
    ['terminal?cols=90', 'onTerminal'],
  ] as const) {
    const started = Promise.withResolvers<FakeProcess>();
    harness.runner[hook] = started.resolve;
    const client = new SocketClient(harness, `/v1/runs/${id}/${what}`);
    const { head, stream } = await started.promise;
    assert.deepEqual([head['cwd'], head['env']], ['/srv', ENV], what);
    stream.close();
    await client.closed;
  }
  const { body } = await call('POST', `/v1/runs/${id}/commands`, { command: 'x', env: { OTHER: '1' } });
  const { head } = harness.runner.commands.find(id, body.id);
  assert.deepEqual([head.cwd, head.env], ['/srv', { ...ENV, OTHER: '1' }]);
});

test('directory and variables of a request win, and a sandbox without any adds nothing', async () => {
  const { id } = await harness.create({ env: ENV, cwd: '/srv' });
  const request = { cwd: '/tmp', env: { OTHER: '2', MORE: '' } };
  assert.deepEqual(await exec(id, request), ['/tmp', { TOKEN: CANARY, OTHER: '2', MORE: '' }]);
  const plain = await harness.create({ env: {} });
  assert.equal(plain.cwd, null);
  assert.deepEqual(await exec(plain.id), [undefined, undefined]);
  assert.deepEqual(await exec(plain.id, request), ['/tmp', { OTHER: '2', MORE: '' }]);
});

test('relative paths of files start in the directory of the sandbox', async () => {
  const { id } = await harness.create({ cwd: '/srv' });
  const files = `/v1/runs/${id}/files`;
  const upload = await harness.call('POST', `${files}/upload?path=a/b`, { raw: 'content' });
  assert.equal(upload.body.path, '/srv/a/b');
  assert.equal((await harness.fetch('GET', `${files}/download?path=a/b`)).status, 200);
  assert.equal((await harness.fetch('GET', `${files}/download?path=/srv/a/b`)).status, 200);
  const link = await call('POST', `${files}/links`, { path: 'a/b', method: 'download' });
  await call('PATCH', `/v1/runs/${id}`, { cwd: '/opt' });
  assert.equal((await harness.fetch('GET', `${files}/download?path=a/b`)).status, 404);
  assert.equal(await (await fetch(link.body.url)).text(), 'content');
  assert.equal(
    (await call('POST', `/v1/runs/${(await harness.create()).id}/files/upload?path=a`)).body.path,
    'a',
  );
});

test('children, restored and resumed sandboxes have them, also after a restart', async () => {
  const { id } = await harness.create({ env: ENV, cwd: '/srv', timeout: 0 });
  const [child] = (await call('POST', `/v1/runs/${id}/fork`)).body;
  const { id: snapshot_id } = (await call('POST', `/v1/runs/${id}/snapshot`)).body;
  const restored = (await call('POST', '/v1/runs/restore', { snapshot_id })).body;
  await call('POST', `/v1/runs/${id}/hibernate`);
  await restart();
  assert.equal((await call('POST', `/v1/runs/${id}/resume`)).status, 200);
  assert.equal((await call('POST', `/v1/runs/${id}/rollback`, { snapshot_id })).status, 200);
  for (const one of [id, child.id, restored.id]) assert.deepEqual(await exec(one), ['/srv', ENV]);
  await call('DELETE', `/v1/runs/${id}`);
  const later = (await call('POST', '/v1/runs/restore', { snapshot_id })).body;
  assert.deepEqual(await exec(later.id), ['/srv', ENV]);
});

test('a restore replaces or removes them, and the others keep theirs', async () => {
  const { id } = await harness.create({ env: ENV, cwd: '/srv' });
  const { id: snapshot_id } = (await call('POST', `/v1/runs/${id}/snapshot`)).body;
  const restore = async (body: object): Promise<[string | undefined, unknown]> =>
    exec((await call('POST', '/v1/runs/restore', { snapshot_id, ...body })).body.id);
  assert.deepEqual(await restore({ env: { A: 'b' }, cwd: '/' }), ['/', { A: 'b' }]);
  assert.deepEqual(await restore({ env: {}, cwd: null }), [undefined, undefined]);
  assert.deepEqual(await restore({}), ['/srv', ENV]);
});

test('a change holds for processes that are started later, and is logged without values', async () => {
  const { id } = await harness.create({ env: ENV });
  const changed = await call('PATCH', `/v1/runs/${id}`, { env: { B: CANARY, A: '1' }, cwd: '/opt' });
  assert.deepEqual([changed.status, changed.body.cwd], [200, '/opt']);
  assert.deepEqual(await exec(id), ['/opt', { B: CANARY, A: '1' }]);
  await restart();
  await call('PATCH', `/v1/runs/${id}`, { timeout: 60 });
  assert.deepEqual(await exec(id), ['/opt', { B: CANARY, A: '1' }]);
  await call('PATCH', `/v1/runs/${id}`, { env: {}, cwd: null });
  assert.deepEqual(await exec(id), [undefined, undefined]);
  const log = (await (await harness.fetch('GET', `/v1/runs/${id}/audit`)).text()).trim().split('\n');
  const changes = log.map((line) => JSON.parse(line)).filter(({ event }) => event === 'settings.changed');
  assert.deepEqual(
    changes.map(({ data }) => data),
    [{ env: ['A', 'B'], cwd: '/opt' }, { timeout: 60 }, { env: [], cwd: null }],
  );
});

test('a variable of a granted credential does not hide its placeholder, except in a request', async () => {
  const env = { OPENAI_API_KEY: CANARY, OPENAI_BASE_URL: 'http://other.test', ANTHROPIC_API_KEY: 'kept' };
  const { id } = await harness.create({ env, credentials: { openai: 'sk-real' } });
  assert.deepEqual(await exec(id), [undefined, { ANTHROPIC_API_KEY: 'kept' }]);
  const own = { OPENAI_API_KEY: 'own' };
  assert.deepEqual(await exec(id, { env: own }), [undefined, { ANTHROPIC_API_KEY: 'kept', ...own }]);
  await call('PUT', `/v1/runs/${id}/credentials`, { credentials: {} });
  assert.deepEqual(await exec(id), [undefined, env]);
});

test('values are in no answer, log line, audit entry or row, and are forgotten when the sandbox ends', async () => {
  const key = { 'idempotency-key': 'with-secrets' };
  const body = { image: 'node:22-slim', env: ENV };
  const created = await harness.call('POST', '/v1/runs', { body, headers: key });
  const { id } = created.body;
  const repeated = await harness.call('POST', '/v1/runs', { body, headers: key });
  assert.equal(repeated.body.id, id);
  const turned = { ...body, env: Object.fromEntries(Object.entries(ENV).toReversed()) };
  assert.equal((await harness.call('POST', '/v1/runs', { body: turned, headers: key })).body.id, id);
  const other = { ...body, env: { ...ENV, TOKEN: 'another' } };
  assert.equal((await harness.call('POST', '/v1/runs', { body: other, headers: key })).status, 422);
  await call('POST', `/v1/runs/${id}/snapshot`);
  await exec(id);
  const bad = await call('POST', '/v1/runs', { image: 'node:22-slim', env: { A: `${CANARY}\0` } });
  assert.equal(bad.status, 400);
  const paths = [`/v1/runs/${id}`, '/v1/runs', '/v1/snapshots', `/v1/runs/${id}/audit`];
  const answers = await Promise.all(paths.map(async (path) => (await harness.fetch('GET', path)).text()));
  assert.deepEqual(await findCanary(harness, [JSON.stringify([created.body, bad.body]), ...answers]), []);
  await using db = harness.openDatabase();
  await call('DELETE', `/v1/runs/${id}`);
  await waitFor('its end', async () => {
    const row = await db.selectFrom('sandboxes').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
    return row.status === 'destroyed' && row.sealed_env === null;
  });
});

const REFUSED: [body: object, message: RegExp][] = [
  [{ env: { 'A=B': '1' } }, /^env\.A=B: a variable name is/u],
  [{ env: { A: 1 } }, /^env\.A: must be a string/u],
  [{ env: { A: 'x\0' } }, /^env\.A: must not contain a NUL/u],
  [{ env: { A: 'x'.repeat(32 << 10) } }, /^env: must have at most 32768 bytes as JSON/u],
  [{ env: { A: '\u0001'.repeat(6000) } }, /^env: must have at most 32768 bytes as JSON/u],
  [
    { env: Object.fromEntries(Array.from({ length: 257 }, (_, index) => [`V${index}`, ''])) },
    /^env: must have at most 256 entries/u,
  ],
  [{ env: ['A=b'] }, /^env: must be an object of strings/u],
  [JSON.parse('{"env":{"__proto__":"x"}}'), /^env\.__proto__: /u],
  [JSON.parse('{"env":{"__proto__":{"A":"x"}}}'), /^env\.__proto__: /u],
  [JSON.parse('{"labels":{"__proto__":"x"}}'), /^labels\.__proto__: /u],
  [{ cwd: 'srv' }, /^cwd: must be an absolute path/u],
  [{ cwd: '' }, /^cwd: must not be empty/u],
];

test('invalid variables and directories are refused with the remedy, at create and later', async () => {
  const { id } = await harness.create();
  for (const [body, message] of REFUSED)
    for (const answer of [
      await call('POST', '/v1/runs', { image: 'node:22-slim', ...body }),
      await call('PATCH', `/v1/runs/${id}`, body),
    ]) {
      assert.equal(answer.status, 400, JSON.stringify(body).slice(0, 80));
      assert.match(answer.body.error.message, message);
    }
});

test('a request whose variables are too large together with those of the sandbox is refused', async () => {
  const { id } = await harness.create({ env: { A: '\u0001'.repeat(5000) } });
  const env = { B: '\u0001'.repeat(130_000) };
  const answer = await call('POST', `/v1/runs/${id}/exec`, { command: 'x', env, stdin: 'y'.repeat(1000) });
  assert.deepEqual([answer.status, answer.body.error?.message?.slice(0, 40)], [200, undefined]);
  const more = { ...env, C: '\u0001'.repeat(40_000) };
  const refused = await call('POST', `/v1/runs/${id}/exec`, { command: 'x', env: more });
  assert.equal(refused.status, 400);
  assert.match(refused.body.error.message, /^env: too large together with the env of the sandbox/u);
});
