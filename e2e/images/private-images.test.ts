/**
 * Private images: the runner's store against Debian's docker-registry, with a password file and with tokens of a login
 * server. A caller gets a stored image only if the registry lets the caller pull it.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { AppError, parseImageReference, type ErrorCode } from '@coppice/contract';
import { pino } from 'pino';
import type { RegistryCredentials } from '../../packages/server/src/lib/protocol/runner-protocol.ts';
import type {
  PrepareProgress,
  StoredImage,
} from '../../packages/server/src/runner/image/store/image-store.types.ts';
import { CacheLeases } from '../../packages/server/src/runner/cache/cache-leases.ts';
import {
  ImageStore,
  type ImageStoreOptions,
} from '../../packages/server/src/runner/image/store/image-store.ts';
import { makeUnpacking } from '../../packages/server/src/runner/image/testing/unpacking.ts';
import { OciLayout, type ImageSpec } from '../fixtures/images/oci-layout.ts';
import { startRegistry, type Registry } from '../fixtures/images/registry.ts';
import { startTokenServer } from '../fixtures/images/token-server.ts';

const ANN: RegistryCredentials = { username: 'ann', password: 'right-4711' };
const BOB: RegistryCredentials = { username: 'bob', password: 'right-0815' };
const WRONG: RegistryCredentials = { username: 'ann', password: 'wrong-4712' };
/** bcrypt hash of ann's password. docker-registry reads no other kind. */
const HTPASSWD = 'ann:$2y$05$abcdefghijklmnopqrstuu42w9DfceW/fyfS4/XFj/7K4a91uInxm\n';
const SECRETS = /right-4711|wrong-4712|right-0815/u;

let root: string;
let layout: OciLayout;
let logged = '';

before(async () => {
  root = await mkdtemp('/var/tmp/coppice-private-');
  layout = await OciLayout.create(join(root, 'layout'));
});

after(() => rm(root, { recursive: true, force: true }));

function imageOf(content: string): ImageSpec {
  return {
    layers: [
      { entries: [{ path: 'a', content }] },
      { entries: [{ path: 'b', content }], compression: 'zstd' },
      { entries: [{ path: 'c', content: Buffer.alloc(2 << 20, content) }] },
    ],
  };
}

/** Pushes to a registry without access control, then restarts it with `auth`. */
async function startPrivate(names: readonly string[], auth: Record<string, unknown>): Promise<Registry> {
  const directory = await mkdtemp(join(root, 'registry-'));
  {
    await using open = await startRegistry({ directory });
    for (const name of names) {
      await layout.tag('pushed', await layout.addImage(imageOf(name)));
      await open.push(layout.directory, 'pushed', name);
    }
  }
  return startRegistry({ directory, auth });
}

async function startWithPasswords(names: readonly string[]): Promise<Registry> {
  const path = join(await mkdtemp(join(root, 'passwords-')), 'htpasswd');
  await writeFile(path, HTPASSWD);
  return startPrivate(names, { htpasswd: { realm: 'test', path } });
}

async function openStore(
  insecureRegistries: readonly string[],
  change: Partial<ImageStoreOptions> = {},
): Promise<ImageStore> {
  const log = pino({ level: 'trace' }, { write: (line: string) => (logged += line) });
  return ImageStore.open({
    directory: await mkdtemp(join(root, 'store-')),
    unpacking: await makeUnpacking(),
    mirrors: {},
    insecureRegistries,
    builtin: [],
    localDirectory: join(root, 'local'),
    leases: new CacheLeases(),
    log,
    ...change,
  });
}

function prepare(store: ImageStore, name: string, credentials?: RegistryCredentials): Promise<StoredImage> {
  const access = credentials === undefined ? {} : { credentials };
  return store.prepare(parseImageReference(name), { access });
}

async function assertRefused(work: Promise<unknown>, code: ErrorCode, pattern: RegExp): Promise<void> {
  await assert.rejects(work, (error) => {
    assert(error instanceof AppError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, pattern);
    assert.doesNotMatch(error.message, SECRETS);
    return true;
  });
}

test('with a password file only callers with the password can pull an image', async () => {
  await using registry = await startWithPasswords(['team/app:1']);
  await using store = await openStore([registry.name]);
  const name = `${registry.name}/team/app:1`;
  const mayBePrivate = new RegExp(`private.*PUT /v1/registries/${registry.name}`, 'u');
  await assertRefused(prepare(store, name), 'image_not_found', mayBePrivate);
  await assertRefused(prepare(store, name, WRONG), 'image_not_found', /refused the credentials stored/u);
  const image = await prepare(store, name, ANN);
  assert.match(execFileSync('rdsquashfs', ['-d', image.path], { encoding: 'utf8' }), /file a .*\n.*file b /u);
  await assertRefused(prepare(store, `${registry.name}/team/app:2`, ANN), 'image_not_found', /check name/u);
});

test('a stored image is not served to callers who may not pull it, not even by its digest', async () => {
  await using registry = await startWithPasswords(['team/app:1']);
  await using store = await openStore([registry.name]);
  const image = await prepare(store, `${registry.name}/team/app:1`, ANN);
  for (const name of [`${registry.name}/team/app:1`, `${registry.name}/team/app@${image.digest}`]) {
    await assertRefused(prepare(store, name), 'image_not_found', /private/u);
    await assertRefused(prepare(store, name, WRONG), 'image_not_found', /refused the credentials/u);
    assert.equal((await prepare(store, name, ANN)).path, image.path);
  }
});

test('while the registry is down only previously served callers are served, and none after a restart', async () => {
  const directory = await mkdtemp(join(root, 'store-'));
  const limits = { tagTtlMs: 0 };
  const registry = await startWithPasswords(['team/app:1']);
  await using _registry = registry;
  const name = `${registry.name}/team/app:1`;
  {
    await using store = await openStore([registry.name], { directory, limits });
    const image = await prepare(store, name, ANN);
    await registry.close();
    assert.equal((await prepare(store, name, ANN)).path, image.path);
    assert.equal((await prepare(store, `${registry.name}/team/app@${image.digest}`, ANN)).path, image.path);
    for (const other of [undefined, WRONG, BOB]) {
      await assertRefused(prepare(store, name, other), 'registry_unavailable', /cannot be reached/u);
    }
  }
  await using store = await openStore([registry.name], { directory, limits });
  for (const other of [undefined, ANN]) {
    await assertRefused(prepare(store, name, other), 'registry_unavailable', /cannot be reached/u);
  }
});

test('revoked access ends, and stays revoked while the registry is down', async () => {
  const registry = await startWithPasswords(['team/app:1']);
  await using _registry = registry;
  const name = `${registry.name}/team/app:1`;
  await using store = await openStore([registry.name], { limits: { tagTtlMs: 0 } });
  await prepare(store, name, ANN);
  await registry.close();
  const { directory, port } = registry;
  const path = join(await mkdtemp(join(root, 'passwords-')), 'htpasswd');
  await writeFile(path, HTPASSWD.replace('ann', 'carl'));
  {
    await using changed = await startRegistry({ directory, port, auth: { htpasswd: { realm: 'x', path } } });
    assert.equal(changed.name, registry.name);
    await assertRefused(prepare(store, name, ANN), 'image_not_found', /refused the credentials/u);
  }
  await assertRefused(prepare(store, name, ANN), 'registry_unavailable', /cannot be reached/u);
});

test('with tokens access is separate for each repository, and a token is used until it expires', async () => {
  const directory = join(root, 'tokens');
  await mkdir(directory);
  await using login = await startTokenServer({
    directory,
    users: { ann: ANN.password, bob: BOB.password },
    mayPull: (user, repository) => repository === 'public/app' || user === 'ann',
  });
  await using registry = await startPrivate(['team/app:1', 'public/app:1'], login.auth);
  const store = await openStore([registry.name, login.name], { limits: { tagTtlMs: 0 } });
  await using _store = store;
  const [team, open] = [`${registry.name}/team/app:1`, `${registry.name}/public/app:1`];

  const shown = await prepare(store, open);
  assert.equal(login.tokens, 1);
  await assertRefused(prepare(store, team), 'image_not_found', /private/u);
  await assertRefused(prepare(store, team, BOB), 'image_not_found', /do not allow pulling it/u);
  await assertRefused(prepare(store, team, WRONG), 'image_not_found', /refused the credentials stored/u);

  const given = login.tokens;
  const image = await prepare(store, team, ANN);
  await prepare(store, team, ANN);
  assert.equal(login.tokens, given + 1);
  await assertRefused(
    prepare(store, `${registry.name}/team/app@${image.digest}`, BOB),
    'image_not_found',
    /./u,
  );

  await registry.close();
  assert.equal((await prepare(store, open)).path, shown.path);
  await assertRefused(prepare(store, open, BOB), 'registry_unavailable', /cannot be reached/u);
});

test('a login server on a private address must be named by the operator', async () => {
  const directory = join(root, 'tokens-private');
  await mkdir(directory);
  await using login = await startTokenServer({ directory, users: {}, mayPull: () => true });
  await using registry = await startPrivate(['public/app:1'], login.auth);
  await using store = await openStore([registry.name]);
  const refused = prepare(store, `${registry.name}/public/app:1`);
  await assertRefused(refused, 'invalid_image', new RegExp(`${login.name}.*private address`, 'u'));
  assert.equal(login.tokens, 0);
});

test('progress grows to the total in both steps', async () => {
  await using registry = await startWithPasswords(['team/app:1']);
  await using store = await openStore([registry.name]);
  const told: PrepareProgress[] = [];
  await store.prepare(parseImageReference(`${registry.name}/team/app:1`), {
    access: { credentials: ANN },
    onProgress: (progress) => told.push(progress),
  });
  for (const step of ['pull', 'flatten'] as const) {
    const done = told.filter((progress) => progress.step === step);
    assert.ok(done.length > 0 && done.length < 20, `${done.length} of ${step}`);
    assert.equal(done.at(-1)?.doneBytes, done.at(-1)?.totalBytes);
  }
});

test('no password is in a log or in a file of the stores', async () => {
  assert.match(logged, /image prepared/u);
  assert.doesNotMatch(logged, SECRETS);
  const stores = (await readdir(root)).filter((name) => name.startsWith('store-'));
  assert.ok(stores.length > 0);
  const paths = stores.map((name) => join(root, name));
  assert.throws(
    () => execFileSync('grep', ['-rqE', 'right-4711|wrong-4712|right-0815', ...paths], { timeout: 30_000 }),
    (error) => (error as { status?: number }).status === 1,
  );
});
