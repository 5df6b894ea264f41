/** Disks and their snapshots, through the API, with a fake runner. */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { AppError, DISK_GB_BYTES, MAX_DISK_GB } from '@coppice/contract';
import { startHarness, waitFor, type Answer, type ControlHarness } from '../testing/control-harness.ts';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
afterEach(() => harness.runner.disks.reset());

let count = 0;
const newName = (): string => `disk-${(count += 1)}`;
const call = (method: string, path: string, body?: unknown, headers: Record<string, string> = {}) =>
  harness.call(method, path, { headers, ...(body === undefined ? {} : { body }) });

async function create(more: object = {}): Promise<string> {
  const name = newName();
  const { status, body } = await call('POST', '/v1/disks', { name, size_gb: 10, ...more });
  assert.equal(status, 201, JSON.stringify(body));
  return name;
}

const snapshot = (disk: string, name: string, more: object = {}) =>
  call('POST', `/v1/disks/${disk}/snapshots`, { name, ...more });
const fork = (disk: string, body: object) => call('POST', `/v1/disks/${disk}/fork`, body);
const remove = (disk: string) => call('DELETE', `/v1/disks/${disk}`);

/** Finds the disk of a name that only one organization has. */
async function idOf(name: string): Promise<string> {
  await using db = harness.openDatabase();
  const row = await db.selectFrom('disks').select('id').where('name', '=', name).executeTakeFirstOrThrow();
  return row.id;
}

function assertRefused({ status, body }: Answer, expected: readonly [number, string, RegExp]): void {
  assert.deepEqual([status, body.error?.code], expected.slice(0, 2), JSON.stringify(body));
  assert.match(body.error.message, expected[2]);
}

test('a new disk is available, has its size at the runner, and is listed', async () => {
  const name = newName();
  const made = await call('POST', '/v1/disks', { name, size_gb: 3, durability: 'local' });
  assert.equal(made.status, 201);
  assert.equal(made.headers.get('location'), `/v1/disks/${name}`);
  const { created_at, drained_at, team_id, ...rest } = made.body;
  assert.deepEqual(rest, {
    name,
    status: 'available',
    size_gb: 3,
    stored_bytes: 0,
    attached_to: null,
    parent: null,
    durability: 'local',
    drained_version: 1,
    dirty_bytes: 0,
    waits_for: null,
  });
  assert.ok(created_at <= drained_at && team_id.startsWith('team'));
  assert.equal(harness.runner.disks.all.get(await idOf(name))?.sizeBytes, 3 * DISK_GB_BYTES);
  assert.deepEqual((await call('GET', `/v1/disks/${name}`)).body, made.body);
  const listed = (await call('GET', '/v1/disks')).body as { name: string }[];
  assert.equal(listed[0]?.name, name);
});

test('lists come in pages, the newest first', async () => {
  const apiKey = await harness.addOrganization();
  for (const name of ['a', 'b', 'c'])
    await harness.call('POST', '/v1/disks', { apiKey, body: { name, size_gb: 1 } });
  const first = await harness.call('GET', '/v1/disks?limit=2', { apiKey });
  assert.deepEqual(
    first.body.map(({ name }: { name: string }) => name),
    ['c', 'b'],
  );
  const next = /^<([^>]+)>; rel="next"$/u.exec(first.headers.get('link') ?? '')?.[1] ?? '';
  const second = await harness.call('GET', next, { apiKey });
  assert.deepEqual(
    second.body.map(({ name }: { name: string }) => name),
    ['a'],
  );
  assert.equal(second.headers.get('link'), null);
});

test('a name is unique in its organization, and free again after a delete', async () => {
  const name = await create();
  const first = await idOf(name);
  assertRefused(await call('POST', '/v1/disks', { name, size_gb: 1 }), [409, 'already_exists', /^name: /u]);
  const apiKey = await harness.addOrganization();
  const theirs = await harness.call('POST', '/v1/disks', { apiKey, body: { name, size_gb: 1 } });
  assert.equal(theirs.status, 201);
  assert.equal((await remove(name)).status, 204);
  assert.ok(!harness.runner.disks.all.has(first));
  assert.equal((await call('POST', '/v1/disks', { name, size_gb: 1 })).status, 201);
});

test('of concurrent creates with one name, one succeeds', async () => {
  const name = newName();
  const answers = await Promise.all([1, 2, 3].map(() => call('POST', '/v1/disks', { name, size_gb: 1 })));
  assert.deepEqual(
    answers.map(({ status }) => status).toSorted((a, b) => a - b),
    [201, 409, 409],
  );
});

test('the disks of another organization are not found, whatever is done with them', async () => {
  const name = await create();
  await snapshot(name, 'v1');
  const apiKey = await harness.addOrganization();
  const path = `/v1/disks/${name}`;
  const tries: [string, string, unknown?][] = [
    ['GET', path],
    ['PATCH', path, { size_gb: 20 }],
    ['DELETE', path],
    ['POST', `${path}/flush`],
    ['GET', `${path}/snapshots`],
    ['POST', `${path}/snapshots`, { name: 'v2' }],
    ['DELETE', `${path}/snapshots/v1`],
    ['POST', `${path}/fork`, { snapshot: 'v1', name: 'mine' }],
  ];
  for (const [method, url, body] of tries) {
    const answer = await harness.call(method, url, { apiKey, ...(body === undefined ? {} : { body }) });
    assert.equal(answer.status, 404, `${method} ${url}`);
  }
  assert.deepEqual((await harness.call('GET', '/v1/disks', { apiKey })).body, []);
  const body = { image: 'node:22-slim', disk: name };
  assertRefused(await harness.call('POST', '/v1/runs', { apiKey, body }), [404, 'not_found', /^disk: /u]);
});

test('a disk grows, and never shrinks', async () => {
  const name = await create();
  const grown = await call('PATCH', `/v1/disks/${name}`, { size_gb: 12 });
  assert.deepEqual([grown.status, grown.body.size_gb], [200, 12]);
  assert.equal(harness.runner.disks.all.get(await idOf(name))?.sizeBytes, 12 * DISK_GB_BYTES);
  const smaller = await call('PATCH', `/v1/disks/${name}`, { size_gb: 11 });
  assertRefused(smaller, [400, 'invalid_request', /^size_gb: the disk has 12 GB, and can only grow$/u]);
});

test('a growth that the runner refuses leaves the size as it was, and one that it did not answer is finished', async () => {
  await using own = await startHarness({ runnerOutageDeadlineMs: 10 });
  const body = { name: 'data', size_gb: 10 };
  assert.equal((await own.call('POST', '/v1/disks', { body })).status, 201);
  const grow = (size_gb: number) => own.call('PATCH', '/v1/disks/data', { body: { size_gb } });
  own.runner.disks.onRequest = () => {
    throw new AppError('capacity', 'no room');
  };
  assertRefused(await grow(11), [429, 'capacity', /no room/u]);
  own.runner.disks.onRequest = () => {
    throw new AppError('unavailable', 'the runner restarts');
  };
  assert.equal((await grow(12)).status, 503);
  assertRefused(await grow(11), [503, 'unavailable', /is being grown/u]);
  own.runner.disks.reset();
  await waitFor('the growth', async () => (await own.call('GET', '/v1/disks/data')).body.size_gb === 12);
});

test('a disk that the runner does not make leaves nothing', async () => {
  const name = newName();
  harness.runner.disks.onRequest = (what) => {
    if (what === 'PUT') throw new AppError('capacity', 'the object store is full');
  };
  assertRefused(await call('POST', '/v1/disks', { name, size_gb: 1 }), [429, 'capacity', /full/u]);
  assert.equal((await call('GET', `/v1/disks/${name}`)).status, 404);
  harness.runner.disks.reset();
  assert.equal((await call('POST', '/v1/disks', { name, size_gb: 1 })).status, 201);
});

test('the same Idempotency-Key gets the same disk, snapshot and fork', async () => {
  const headers = { 'idempotency-key': 'once' };
  const name = newName();
  const first = await call('POST', '/v1/disks', { name, size_gb: 1 }, headers);
  const again = await call('POST', '/v1/disks', { size_gb: 1, name }, headers);
  assert.deepEqual([again.status, again.body], [201, first.body]);
  assert.equal((await call('POST', '/v1/disks', { name, size_gb: 2 }, headers)).status, 422);
  const path = `/v1/disks/${name}/snapshots`;
  const taken = await call('POST', path, { name: 'v1' }, headers);
  assert.deepEqual((await call('POST', path, { name: 'v1' }, headers)).body, taken.body);
  const body = { snapshot: 'v1', name: newName() };
  const copy = await call('POST', `/v1/disks/${name}/fork`, body, headers);
  assert.deepEqual((await call('POST', `/v1/disks/${name}/fork`, body, headers)).body, copy.body);
});

test('quotas count disks and their sizes, and name the limit', async () => {
  await using small = await startHarness({ disksPerOrganization: 2, diskGbPerOrganization: 10 });
  const make = (name: string, size_gb: number) =>
    small.call('POST', '/v1/disks', { body: { name, size_gb } });
  assertRefused(await make('a', 11), [
    429,
    'capacity',
    /has 0 GB of disks and asks for 11 more, the limit is 10/u,
  ]);
  assert.equal((await make('a', 4)).status, 201);
  const grown = await small.call('PATCH', '/v1/disks/a', { body: { size_gb: 11 } });
  assertRefused(grown, [429, 'capacity', /has 4 GB of disks and asks for 7 more/u]);
  await small.call('POST', '/v1/disks/a/snapshots', { body: { name: 'v1' } });
  assert.equal(
    (await small.call('POST', '/v1/disks/a/fork', { body: { snapshot: 'v1', name: 'b' } })).status,
    201,
  );
  assertRefused(await make('c', 1), [429, 'capacity', /has 2 disks and asks for 1 more, the limit is 2/u]);
  assert.equal((await small.call('DELETE', '/v1/disks/b')).status, 204);
  assert.equal((await make('c', 6)).status, 201);
});

test('a snapshot keeps the size and the moment, and is listed until it is deleted', async () => {
  const disk = await create();
  const { status, body } = await snapshot(disk, 'v1', { sync: true });
  assert.equal(status, 201);
  const { created_at, ...rest } = body;
  assert.deepEqual(rest, { name: 'v1', disk, size_gb: 10, version: 2 });
  assert.ok(Math.abs(Date.parse(created_at) - Date.now()) < 10_000);
  assertRefused(await snapshot(disk, 'v1'), [409, 'already_exists', /^name: the disk has a snapshot "v1"/u]);
  await snapshot(disk, 'v2');
  const list = async () =>
    ((await call('GET', `/v1/disks/${disk}/snapshots`)).body as { name: string }[]).map(({ name }) => name);
  assert.deepEqual(await list(), ['v2', 'v1']);
  assert.equal((await call('DELETE', `/v1/disks/${disk}/snapshots/v1`)).status, 204);
  assert.deepEqual(await list(), ['v2']);
  assert.equal(harness.runner.disks.all.get(await idOf(disk))?.snapshots.size, 1);
  assert.equal((await call('DELETE', `/v1/disks/${disk}/snapshots/v1`)).status, 404);
  assert.equal((await snapshot(disk, 'v1')).status, 201);
  assert.equal((await snapshot('no-disk', 'v1')).status, 404);
});

test('a snapshot whose answer was lost is removed with the version that it keeps', async () => {
  await using own = await startHarness({ runnerOutageDeadlineMs: 10 });
  await own.call('POST', '/v1/disks', { body: { name: 'data', size_gb: 1 } });
  own.runner.disks.beforeAnswer = (what) => {
    if (what === 'POST snapshots') throw new AppError('unavailable', 'the answer is lost');
  };
  const body = { name: 'v1' };
  assert.equal((await own.call('POST', '/v1/disks/data/snapshots', { body })).status, 503);
  const [disk] = own.runner.disks.all.values();
  assert.equal(disk?.snapshots.size, 1);
  own.runner.disks.reset();
  await waitFor('the version to be removed', () => disk?.snapshots.size === 0);
  assert.deepEqual((await own.call('GET', '/v1/disks/data/snapshots')).body, []);
});

test('a fork is a disk of its own with its parent, which cannot be deleted before it', async () => {
  const disk = await create();
  await snapshot(disk, 'v1');
  const copy = newName();
  const made = await fork(disk, { snapshot: 'v1', name: copy });
  assert.deepEqual([made.status, made.body.parent, made.body.size_gb], [201, disk, 10]);
  assertRefused(await fork(disk, { snapshot: 'v1', name: copy }), [409, 'already_exists', /^name: /u]);
  assertRefused(await fork(disk, { snapshot: 'v9', name: newName() }), [
    404,
    'not_found',
    /^snapshot: .* no snapshot "v9"/u,
  ]);
  assertRefused(await fork('no-disk', { snapshot: 'v1', name: newName() }), [404, 'not_found', /no-disk/u]);
  assertRefused(await remove(disk), [
    409,
    'disk_has_forks',
    new RegExp(`forked from it exist: ${copy}$`, 'u'),
  ]);
  assert.equal((await call('DELETE', `/v1/disks/${disk}/snapshots/v1`)).status, 204);
  assert.equal((await remove(copy)).status, 204);
  assert.equal((await remove(disk)).status, 204);
});

test('a delete that the runner refuses leaves the disk, and one without an answer is finished later', async () => {
  const disk = await create();
  const id = await idOf(disk);
  harness.runner.disks.elsewhere.add(id);
  assertRefused(await remove(disk), [409, 'disk_in_use', /in use/u]);
  assert.equal((await call('GET', `/v1/disks/${disk}`)).body.waits_for?.startsWith('another service'), true);
  harness.runner.disks.reset();
  harness.runner.disks.onRequest = (what) => {
    if (what === 'DELETE') throw new AppError('unavailable', 'the runner restarts');
  };
  assert.equal((await remove(disk)).status, 204);
  assert.equal((await call('GET', `/v1/disks/${disk}`)).status, 404);
  assert.ok(harness.runner.disks.all.has(id));
  harness.runner.disks.reset();
  await waitFor('the disk to be removed', () => !harness.runner.disks.all.has(id));
});

test('a flush answers with the newest version', async () => {
  const disk = await create();
  const { status, body } = await call('POST', `/v1/disks/${disk}/flush`);
  assert.deepEqual([status, body.drained_version], [200, 2]);
});

test('a disk is shown as it was last seen while the runner is away', async () => {
  const disk = await create();
  harness.runner.disks.onRequest = () => {
    throw new AppError('unavailable', 'the runner restarts');
  };
  const { status, body } = await call('GET', `/v1/disks/${disk}`);
  assert.deepEqual([status, body.drained_version], [200, 1]);
});

for (const [status, hasDisk] of [
  ['creating', true],
  ['creating', false],
  ['deleting', true],
  ['deleting', false],
] as const)
  test(`a disk that was left ${status}, ${hasDisk ? 'with' : 'without'} a disk at the runner, is removed`, async () => {
    const name = await create();
    const id = await idOf(name);
    if (!hasDisk) harness.runner.disks.all.delete(id);
    await using db = harness.openDatabase();
    await db.updateTable('disks').set({ status }).where('id', '=', id).execute();
    await waitFor('the record to be removed', async () => {
      const row = await db.selectFrom('disks').select('id').where('id', '=', id).executeTakeFirst();
      return row === undefined && !harness.runner.disks.all.has(id);
    });
  });

test('a key that is limited to reading may look at disks only', async () => {
  const disk = await create();
  await using db = harness.openDatabase();
  await db.updateTable('api_keys').set({ scope: 'read' }).execute();
  try {
    assert.equal((await call('GET', `/v1/disks/${disk}`)).status, 200);
    assert.equal((await call('GET', '/v1/disks')).status, 200);
    assert.equal((await call('GET', `/v1/disks/${disk}/snapshots`)).status, 200);
    for (const [method, path, body] of [
      ['POST', '/v1/disks', { name: 'x', size_gb: 1 }],
      ['PATCH', `/v1/disks/${disk}`, { size_gb: 20 }],
      ['DELETE', `/v1/disks/${disk}`, undefined],
      ['POST', `/v1/disks/${disk}/flush`, undefined],
      ['POST', `/v1/disks/${disk}/snapshots`, { name: 'v1' }],
      ['POST', `/v1/disks/${disk}/fork`, { snapshot: 'v1', name: 'y' }],
    ] as const)
      assert.equal((await call(method, path, body)).status, 403, `${method} ${path}`);
  } finally {
    await db.updateTable('api_keys').set({ scope: 'full' }).execute();
  }
});

test('a disk image becomes a disk, whose size is rounded up, and can be read again', async () => {
  const name = newName();
  const image = Buffer.alloc(5000, 'x');
  const made = await harness.call('PUT', `/v1/disks/${name}/content?format=raw`, { raw: image });
  assert.deepEqual([made.status, made.body.size_gb, made.body.name], [201, 1, name]);
  assert.equal(harness.runner.disks.all.get(await idOf(name))?.sizeBytes, DISK_GB_BYTES);
  const response = await harness.fetch('GET', `/v1/disks/${name}/content`);
  assert.deepEqual(
    [response.status, response.headers.get('content-type')],
    [200, 'application/octet-stream'],
  );
  assert.ok(Buffer.from(await response.arrayBuffer()).equals(image));
  await snapshot(name, 'v1');
  assert.equal(
    (await harness.fetch('GET', `/v1/disks/${name}/content?snapshot=v1&format=qcow2`)).status,
    200,
  );
  assertRefused(await call('GET', `/v1/disks/${name}/content?snapshot=v9`), [
    404,
    'not_found',
    /^snapshot: /u,
  ]);
  assertRefused(await call('GET', `/v1/disks/${name}/content?format=vmdk`), [
    400,
    'invalid_request',
    /^format: /u,
  ]);
  const put = (path: string) => harness.call('PUT', path, { raw: image });
  assertRefused(await put(`/v1/disks/${name}/content`), [409, 'already_exists', /^name: /u]);
  assertRefused(await put('/v1/disks/Not-A-Name/content'), [
    400,
    'invalid_request',
    /^disk: must be 1 to 30/u,
  ]);
});

test('an import that the runner refuses, or beyond the quota, leaves nothing', async () => {
  await using small = await startHarness({ diskGbPerOrganization: 1 });
  const put = () => small.call('PUT', '/v1/disks/data/content', { raw: Buffer.alloc(10) });
  small.runner.disks.onRequest = (what) => {
    if (what === 'POST import') throw new AppError('invalid_request', 'body: is no ext4 file system');
  };
  assertRefused(await put(), [400, 'invalid_request', /no ext4/u]);
  small.runner.disks.onRequest = () => undefined;
  small.runner.disks.importedBytes = DISK_GB_BYTES + 1;
  const tooLarge = /^body: .* more than the 1 GB that the organization may still have, the limit is 1 GB/u;
  assertRefused(await put(), [429, 'capacity', tooLarge]);
  assert.deepEqual((await small.call('GET', '/v1/disks')).body, []);
  await waitFor('the disk to be removed', () => small.runner.disks.all.size === 0);
  small.runner.disks.importedBytes = undefined;
  assert.equal((await put()).status, 201);
});

test('an import may use what other disks leave, and not what they have taken meanwhile', async () => {
  await using own = await startHarness({ diskGbPerOrganization: 5 });
  const make = (name: string) => own.call('POST', '/v1/disks', { body: { name, size_gb: 2 } });
  const put = () => own.call('PUT', '/v1/disks/data/content', { raw: Buffer.alloc(10) });
  assert.equal((await make('first')).status, 201);
  own.runner.disks.importedBytes = 3 * DISK_GB_BYTES + 1;
  assertRefused(await put(), [429, 'capacity', /^body: .* more than the 3 GB/u]);
  own.runner.disks.importedBytes = 3 * DISK_GB_BYTES;
  own.runner.disks.beforeAnswer = async (what) => {
    if (what === 'POST import') assert.equal((await make('second')).status, 201);
  };
  assertRefused(await put(), [429, 'capacity', /has 5 GB of disks and asks for 2 more/u]);
  own.runner.disks.reset();
  assert.equal((await own.call('DELETE', '/v1/disks/second')).status, 204);
  const made = await put();
  assert.deepEqual([made.status, made.body.size_gb], [201, 3]);
});

test('an image is no larger than a disk can be, whatever the organization may have', async () => {
  await using own = await startHarness({ diskGbPerOrganization: 0 });
  own.runner.disks.importedBytes = MAX_DISK_GB * DISK_GB_BYTES + 1;
  const put = () => own.call('PUT', '/v1/disks/data/content', { raw: Buffer.alloc(10) });
  assertRefused(await put(), [400, 'invalid_request', /^body: the image has more than 16384 GB/u]);
  own.runner.disks.importedBytes = MAX_DISK_GB * DISK_GB_BYTES;
  const made = await put();
  assert.deepEqual([made.status, made.body.size_gb], [201, MAX_DISK_GB]);
});
