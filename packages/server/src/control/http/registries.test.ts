import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

const PASSWORD = 'pa55-never-to-be-seen';
const LOGIN = { username: 'robot', password: PASSWORD };
const PRIVATE_IMAGE = 'registry.test:5000/team/app:1';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());

/** Returns a function that calls the API for a new organization. */
async function addCaller(): Promise<ControlHarness['call']> {
  const apiKey = await harness.addOrganization();
  return (method, path, options = {}) => harness.call(method, path, { apiKey, ...options });
}

test('credentials are stored, replaced, listed by registry and deleted, and no answer holds the password', async () => {
  const call = await addCaller();
  const first = await call('PUT', '/v1/registries/Registry.Test%3A5000', { body: LOGIN });
  assert.equal(first.status, 200, JSON.stringify(first.body));
  assert.deepEqual(Object.keys(first.body), ['registry', 'username', 'updated_at']);
  assert.equal(first.body.registry, 'registry.test:5000');
  await call('PUT', '/v1/registries/index.docker.io', { body: LOGIN });
  const replaced = await call('PUT', '/v1/registries/docker.io', { body: { ...LOGIN, username: 'other' } });
  const { body: list } = await call('GET', '/v1/registries');
  assert.deepEqual(list, [replaced.body, first.body]);
  assert.ok(!JSON.stringify([first.body, list]).includes(PASSWORD));

  const deleted = await call('DELETE', '/v1/registries/registry-1.docker.io');
  assert.deepEqual([deleted.status, deleted.body], [204, undefined]);
  assert.deepEqual((await call('GET', '/v1/registries')).body, [first.body]);
  const again = await call('DELETE', '/v1/registries/docker.io');
  assert.deepEqual([again.status, again.body.error.code], [404, 'not_found']);
});

test('the name of a registry may be as long as that of a host', async () => {
  const call = await addCaller();
  const name = `${'a'.repeat(60)}.${'b'.repeat(60)}.registry.test:5000`;
  const path = `/v1/registries/${encodeURIComponent(name)}`;
  assert.equal((await call('PUT', path, { body: LOGIN })).status, 200);
  assert.equal((await call('GET', '/v1/registries')).body[0].registry, name);
  assert.equal((await call('DELETE', path)).status, 204);
});

test('an invalid value is refused by its field, without showing the value', async () => {
  const call = await addCaller();
  const refused: [path: string, body: unknown, message: RegExp][] = [
    ['ghcr.io', { username: 'robot' }, /^password: is required/],
    ['ghcr.io', { ...LOGIN, username: 'a:b' }, /^username: must not contain ":"/],
    ['ghcr.io', { ...LOGIN, password: `${PASSWORD}\n` }, /^password: .*line break/],
    ['ghcr.io', { ...LOGIN, password: PASSWORD.repeat(1000) }, /^password: must be at most 16384 bytes/],
    ['ghcr.io', { ...LOGIN, token: PASSWORD }, /^token: unknown field/],
    ['ghcr.io', PASSWORD, /^body: must be a JSON object/],
    ['myregistry', LOGIN, /^registry: "myregistry": .*dot or a port/],
    ['https%3A%2F%2Fghcr.io', LOGIN, /^registry: .*not be a URL/],
    ['coppice', LOGIN, /^registry: .*built in/],
  ];
  for (const [registry, body, message] of refused) {
    const answer = await call('PUT', `/v1/registries/${registry}`, { body });
    assert.deepEqual([answer.status, answer.body.error.code], [400, 'invalid_request'], registry);
    assert.match(answer.body.error.message, message);
    assert.ok(!JSON.stringify(answer.body).includes(PASSWORD));
  }
  assert.deepEqual((await call('GET', '/v1/registries')).body, []);
});

test('creates and builds use the credentials of the image’s registry and of no other', async () => {
  const call = await addCaller();
  const other = await addCaller();
  await call('PUT', '/v1/registries/registry.test:5000', { body: LOGIN });
  const access = { credentials: LOGIN };
  harness.runner.progress = [];
  const sent = async (by: typeof call, image: string) => {
    await by('POST', '/v1/runs', { body: { image } });
    await by('POST', '/v1/images/build', { body: { image } });
    return [harness.runner.creates.at(-1)?.access, harness.runner.preparations.at(-1)?.access];
  };
  assert.deepEqual(await sent(call, 'REGISTRY.test:5000/team/app:1'), [access, access]);
  assert.deepEqual(await sent(call, 'registry.test/team/app:1'), [{}, {}]);
  assert.deepEqual(await sent(call, 'node:22-slim'), [{}, {}]);
  assert.deepEqual(await sent(call, 'coppice/base:1'), [{}, {}]);
  assert.deepEqual(await sent(other, PRIVATE_IMAGE), [{}, {}]);

  await call('PUT', '/v1/registries/registry.test:5000', { body: { ...LOGIN, password: 'next' } });
  assert.equal((await sent(call, PRIVATE_IMAGE))[0]?.credentials?.password, 'next');
  await call('DELETE', '/v1/registries/registry.test:5000');
  assert.deepEqual(await sent(call, PRIVATE_IMAGE), [{}, {}]);
});

test('an organization neither sees nor deletes the credentials of another', async () => {
  const [call, other] = [await addCaller(), await addCaller()];
  await call('PUT', '/v1/registries/ghcr.io', { body: LOGIN });
  assert.deepEqual((await other('GET', '/v1/registries')).body, []);
  assert.equal((await other('DELETE', '/v1/registries/ghcr.io')).status, 404);
  assert.equal((await call('GET', '/v1/registries')).body.length, 1);
});

test('an organization has credentials for at most 100 registries, and can replace them at the limit', async () => {
  const call = await addCaller();
  for (let index = 0; index < 100; index += 1)
    assert.equal((await call('PUT', `/v1/registries/r${index}.test`, { body: LOGIN })).status, 200);
  const over = await call('PUT', '/v1/registries/one-more.test', { body: LOGIN });
  assert.deepEqual([over.status, over.body.error.code], [429, 'capacity']);
  assert.equal((await call('PUT', '/v1/registries/r7.test', { body: LOGIN })).status, 200);
});

test('no log line and no file of the service contains the password', async () => {
  const call = await addCaller();
  await call('PUT', '/v1/registries/registry.test:5000', { body: LOGIN });
  await call('POST', '/v1/runs', {
    body: { image: PRIVATE_IMAGE },
    headers: { 'idempotency-key': 'with-credentials' },
  });
  harness.runner.onCreate = () => {
    throw new Error('the runner failed');
  };
  assert.equal((await call('POST', '/v1/runs', { body: { image: PRIVATE_IMAGE } })).status, 500);
  harness.runner.onCreate = () => undefined;
  assert.ok(harness.logLines.some((line) => line.includes('/v1/registries/:registry')));
  assert.ok(!harness.logLines.join('').includes(PASSWORD));
  const files = readdirSync(harness.directory, { recursive: true, withFileTypes: true }).filter((file) =>
    file.isFile(),
  );
  assert.ok(files.some(({ name }) => name === 'master.key'));
  for (const { parentPath, name } of files)
    assert.ok(!readFileSync(join(parentPath, name)).includes(PASSWORD), name);
});

test('under another master key a stored password must be stored again, and everything else keeps working', async () => {
  const call = await addCaller();
  await call('PUT', '/v1/registries/registry.test:5000', { body: LOGIN });
  await harness.stopControl();
  writeFileSync(join(harness.config.dataDir, 'master.key'), randomBytes(32));
  await harness.startControl();
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
  for (const path of ['/v1/runs', '/v1/images/build']) {
    const answer = await call('POST', path, { body: { image: PRIVATE_IMAGE } });
    assert.deepEqual([answer.status, answer.body.error.code], [409, 'secret_unreadable']);
    assert.match(answer.body.error.message, /registry password of registry\.test:5000 .* store it again/);
  }
  assert.equal((await call('POST', '/v1/runs', { body: { image: 'node:22-slim' } })).status, 201);
  assert.equal((await call('GET', '/v1/registries')).body.length, 1);
  await call('PUT', '/v1/registries/registry.test:5000', { body: LOGIN });
  assert.equal((await call('POST', '/v1/runs', { body: { image: PRIVATE_IMAGE } })).status, 201);
});
