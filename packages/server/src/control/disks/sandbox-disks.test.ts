/** Sandboxes with disks, through the API, with a fake runner. */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { AppError, type SandboxRecord } from '@coppice/contract';
import { startHarness, waitFor, type Answer, type ControlHarness } from '../testing/control-harness.ts';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness({ diskDetachDeadlineMs: 2000 });
});
after(() => harness[Symbol.asyncDispose]());
afterEach(() => {
  harness.runner.disks.reset();
  harness.runner.captures.reset();
  harness.runner.onCreate = () => undefined;
});

let count = 0;
const newName = (): string => `data${(count += 1)}`;
const call = (method: string, path: string, body?: unknown) =>
  harness.call(method, path, body === undefined ? {} : { body });
const getDisk = async (name: string) => (await call('GET', `/v1/disks/${name}`)).body;
const run = (body: object) => call('POST', '/v1/runs', { image: 'node:22-slim', ...body });
const act = (id: string, what: string, body?: object) => call('POST', `/v1/runs/${id}/${what}`, body);
const destroy = (id: string) => call('DELETE', `/v1/runs/${id}`);

async function createDisk(): Promise<string> {
  const name = newName();
  const { status } = await call('POST', '/v1/disks', { name, size_gb: 5 });
  assert.equal(status, 201);
  return name;
}

/** Creates a disk with a snapshot `v1`. */
async function createSaved(): Promise<string> {
  const disk = await createDisk();
  assert.equal((await call('POST', `/v1/disks/${disk}/snapshots`, { name: 'v1' })).status, 201);
  return disk;
}

/** Creates a disk and a sandbox with it. */
async function createBoth(more: object = {}): Promise<{ disk: string; id: string }> {
  const disk = await createDisk();
  const { status, body } = await run({ disk, ...more });
  assert.equal(status, 201, JSON.stringify(body));
  return { disk, id: body.id };
}

function assertRefused({ status, body }: Answer, expected: readonly [number, string, RegExp]): void {
  assert.deepEqual([status, body.error?.code], expected.slice(0, 2), JSON.stringify(body));
  assert.match(body.error.message, expected[2]);
}

async function listAudit(id: string): Promise<{ event: string; data: Record<string, unknown> }[]> {
  const response = await harness.fetch('GET', `/v1/runs/${id}/audit`);
  const lines = (await response.text()).trim().split('\n');
  return lines.map((line) => JSON.parse(line));
}

const waitForDisk = (name: string, status: string) =>
  waitFor(`${name} to be ${status}`, async () => (await getDisk(name)).status === status);

test('a sandbox has its disk until it is destroyed, and the destroy waits until all is stored', async () => {
  const { disk, id } = await createBoth();
  const record = (await call('GET', `/v1/runs/${id}`)).body as SandboxRecord;
  const attached = { name: disk, status: 'attached', dirty_bytes: null, waits_for: null, recovered: null };
  assert.deepEqual(record.disk, attached);
  const shown = await getDisk(disk);
  assert.deepEqual([shown.status, shown.attached_to, shown.dirty_bytes], ['attached', id, 4096]);
  const { organization, durability } = harness.runner.creates.at(-1)?.workspace ?? {};
  assert.deepEqual([organization?.startsWith('org'), durability], [true, 'local']);
  harness.runner.disks.pollsUntilDetached = 3;
  const destroyed = await destroy(id);
  assert.deepEqual([destroyed.status, destroyed.body.disk.status], [200, 'detached']);
  const free = await getDisk(disk);
  assert.deepEqual([free.status, free.attached_to, free.dirty_bytes], ['available', null, 0]);
  const events = (await listAudit(id)).map(({ event, data }) => [event, data['disk']]);
  assert.deepEqual(events, [
    ['sandbox.created', undefined],
    ['disk.attached', disk],
    ['disk.detached', disk],
    ['sandbox.destroyed', undefined],
  ]);
  assert.equal((await run({ disk })).status, 201);
});

test('a destroy answers after a while although the disk is still being stored, and says why', async () => {
  await using own = await startHarness({ diskDetachDeadlineMs: 100 });
  await own.call('POST', '/v1/disks', { body: { name: 'data', size_gb: 1 } });
  const { id } = await own.create({ disk: 'data' });
  own.runner.disks.waitsFor = 'the object store cannot be reached';
  const { status, body } = await own.call('DELETE', `/v1/runs/${id}`);
  assert.equal(status, 200);
  const detaching = {
    name: 'data',
    status: 'detaching',
    dirty_bytes: 4096,
    waits_for: 'the object store cannot be reached',
    recovered: null,
  };
  assert.deepEqual(body.disk, detaching);
  assert.deepEqual((await own.call('GET', `/v1/runs/${id}`)).body.disk, detaching);
  const disk = (await own.call('GET', '/v1/disks/data')).body;
  assert.deepEqual([disk.status, disk.waits_for], ['detaching', detaching.waits_for]);
  const other = await own.call('POST', '/v1/runs', { body: { image: 'node:22-slim', disk: 'data' } });
  assertRefused(other, [
    409,
    'disk_in_use',
    new RegExp(`^disk: what the sandbox ${id} wrote .* try again$`, 'u'),
  ]);
  await own.stopControl();
  await own.startControl();
  assert.equal((await own.call('GET', '/v1/disks/data')).body.status, 'detaching');
  own.runner.disks.reset();
  await waitFor(
    'it to be free',
    async () => (await own.call('GET', '/v1/disks/data')).body.status === 'available',
  );
  assert.equal((await own.call('GET', `/v1/runs/${id}`)).body.disk.status, 'detached');
});

test('of concurrent creates with one disk, one gets it, and the others name its sandbox', async () => {
  const disk = await createDisk();
  const answers = await Promise.all([1, 2, 3, 4].map(() => run({ disk })));
  const won = answers.filter(({ status }) => status === 201);
  assert.equal(won.length, 1);
  const id = won[0]?.body.id;
  for (const answer of answers)
    if (answer !== won[0])
      assertRefused(answer, [409, 'disk_in_use', new RegExp(`^disk: the sandbox ${id} has the disk`, 'u')]);
  assertRefused(await call('DELETE', `/v1/disks/${disk}`), [409, 'disk_in_use', new RegExp(String(id), 'u')]);
});

test('a create with a missing disk, or without its snapshot, is refused by field and leaves no record', async () => {
  const disk = await createSaved();
  const before = (await call('GET', '/v1/runs?status=failed')).body;
  assertRefused(await run({ disk: 'no-disk' }), [404, 'not_found', /^disk: there is no disk "no-disk"$/u]);
  const noSource = await run({ fork_from_disk: 'no-disk', disk_snapshot: 'v1' });
  assertRefused(noSource, [404, 'not_found', /^fork_from_disk: there is no disk/u]);
  const noSnapshot = await run({ fork_from_disk: disk, disk_snapshot: 'v9' });
  assertRefused(noSnapshot, [404, 'not_found', /^disk_snapshot: .* has no snapshot "v9"$/u]);
  const taken = await run({ fork_from_disk: disk, disk_snapshot: 'v1', disk });
  assertRefused(taken, [409, 'already_exists', /^disk: there is a disk/u]);
  assertRefused(await run({ fork_from_disk: disk }), [400, 'invalid_request', /^disk_snapshot: /u]);
  assertRefused(await run({ disk_snapshot: 'v1' }), [400, 'invalid_request', /^fork_from_disk: /u]);
  assert.deepEqual((await call('GET', '/v1/runs?status=failed')).body, before);
});

test('a create that fails, or that the runner refuses, frees its disk', async () => {
  const disk = await createDisk();
  harness.runner.onCreate = () => {
    throw new AppError('guest_unreachable', 'the guest did not start');
  };
  assert.equal((await run({ disk })).status, 502);
  await waitForDisk(disk, 'available');
  harness.runner.onCreate = () => undefined;
  await using db = harness.openDatabase();
  const { id } = await db.selectFrom('disks').select('id').where('name', '=', disk).executeTakeFirstOrThrow();
  harness.runner.disks.elsewhere.add(id);
  assertRefused(await run({ disk }), [409, 'disk_in_use', /another service/u]);
  harness.runner.disks.reset();
  await waitForDisk(disk, 'available');
  assert.equal((await run({ disk })).status, 201);
});

test('a sandbox can be created on a fork of a disk, which gets a free name or the given one', async () => {
  const disk = await createSaved();
  const first = await run({ fork_from_disk: disk, disk_snapshot: 'v1' });
  assert.deepEqual([first.status, first.body.disk.name], [201, `${disk}-1`]);
  const second = await run({ fork_from_disk: disk, disk_snapshot: 'v1' });
  assert.equal(second.body.disk.name, `${disk}-2`);
  const named = newName();
  const third = await run({ fork_from_disk: disk, disk_snapshot: 'v1', disk: named });
  assert.equal(third.body.disk.name, named);
  const made = await getDisk(named);
  assert.deepEqual([made.parent, made.size_gb, made.attached_to], [disk, 5, third.body.id]);
  assert.equal((await getDisk(disk)).status, 'available');
});

test('a create that fails removes the fork that was made for it', async () => {
  const disk = await createSaved();
  const known = harness.runner.disks.all.size;
  harness.runner.onCreate = () => {
    throw new AppError('guest_unreachable', 'the guest did not start');
  };
  assert.equal((await run({ fork_from_disk: disk, disk_snapshot: 'v1' })).status, 502);
  await waitFor('the fork to be removed', () => harness.runner.disks.all.size === known);
  assert.equal((await call('GET', `/v1/disks/${disk}-1`)).status, 404);
  assert.equal((await call('DELETE', `/v1/disks/${disk}`)).status, 204);
});

test('a lost sandbox frees its disk, and the next one says from which version it continued', async () => {
  const { disk, id } = await createBoth();
  harness.runner.endVm(id, 'vmm_lost');
  await harness.waitForRecord(id, ({ status }) => status === 'failed');
  await waitForDisk(disk, 'available');
  harness.runner.disks.isRecovered = true;
  const { body } = await run({ disk });
  assert.equal(body.disk.recovered.version, (await getDisk(disk)).drained_version);
  assert.ok(Date.parse(body.disk.recovered.drained_at) <= Date.now());
  const attached = (await listAudit(body.id)).find(({ event }) => event === 'disk.attached');
  assert.equal(attached?.data['recovered'], true);
});

test('a hibernated sandbox frees its disk, and resumes with the version that it has mounted', async () => {
  const { disk, id } = await createBoth();
  const hibernated = await act(id, 'hibernate');
  assert.deepEqual([hibernated.status, hibernated.body.disk.name], [200, disk]);
  await waitForDisk(disk, 'available');
  assert.equal((await call('GET', `/v1/runs/${id}`)).body.disk.status, 'detached');
  const resumed = await act(id, 'resume');
  assert.deepEqual([resumed.status, resumed.body.disk.status], [200, 'attached']);
  assert.equal((await getDisk(disk)).attached_to, id);
  const events = (await listAudit(id)).map(({ event }) => event);
  assert.deepEqual(events.slice(2), [
    'disk.detached',
    'sandbox.hibernated',
    'sandbox.resumed',
    'disk.attached',
  ]);
});

test('a sandbox whose disk has another holder, or has changed, does not resume', async () => {
  const { disk, id } = await createBoth();
  await act(id, 'hibernate');
  await waitForDisk(disk, 'available');
  const other = (await run({ disk })).body.id as string;
  assertRefused(await act(id, 'resume'), [409, 'disk_in_use', new RegExp(`the sandbox ${other} has`, 'u')]);
  assertRefused(await act(id, 'resume?disk=fresh'), [409, 'disk_in_use', new RegExp(other, 'u')]);
  await destroy(other);
  assertRefused(await act(id, 'resume'), [409, 'disk_changed', /has changed since .*\?disk=fresh/u]);
  await waitForDisk(disk, 'available');
  assertRefused(await act(id, 'resume?disk=new'), [400, 'invalid_request', /^disk: must be fresh$/u]);
  const fresh = await act(id, 'resume?disk=fresh');
  assert.deepEqual([fresh.status, fresh.body.disk.status], [200, 'attached']);
});

test('a sandbox whose disk was deleted does not resume, except on a new disk of that name', async () => {
  const { disk, id } = await createBoth();
  await act(id, 'hibernate');
  await waitForDisk(disk, 'available');
  assert.equal((await call('DELETE', `/v1/disks/${disk}`)).status, 204);
  assertRefused(await act(id, 'resume'), [409, 'disk_changed', /has changed since .*\?disk=fresh/u]);
  assertRefused(await act(id, 'resume?disk=fresh'), [404, 'not_found', new RegExp(disk, 'u')]);
  await call('POST', '/v1/disks', { name: disk, size_gb: 1 });
  assertRefused(await act(id, 'resume'), [409, 'disk_changed', /has changed/u]);
  assert.equal((await act(id, 'resume?disk=fresh')).status, 200);
  assert.equal((await getDisk(disk)).attached_to, id);
  await destroy(id);
  assert.equal((await getDisk(disk)).status, 'available');
});

test('a resume that fails frees the disk again', async () => {
  const { disk, id } = await createBoth();
  await act(id, 'hibernate');
  await waitForDisk(disk, 'available');
  harness.runner.captures.onRestore = () => {
    throw new AppError('capacity', 'no room in memory');
  };
  assert.equal((await act(id, 'resume?disk=fresh')).status, 429);
  await waitForDisk(disk, 'available');
  assert.equal((await run({ disk })).status, 201);
});

test('the children of a fork get disks of their own, named by number or as asked', async () => {
  const { disk, id } = await createBoth();
  const forked = await act(id, 'fork', { count: 2 });
  assert.equal(forked.status, 201);
  const names = forked.body.map((child: SandboxRecord) => child.disk?.name);
  assert.deepEqual(names, [`${disk}-1`, `${disk}-2`]);
  const [a, b] = [newName(), newName()];
  const again = await act(id, 'fork', { count: 2, disks: [a, b] });
  assert.deepEqual(
    again.body.map((child: SandboxRecord) => child.disk?.name),
    [a, b],
  );
  const child = await getDisk(a);
  assert.deepEqual([child.parent, child.status, child.attached_to], [disk, 'attached', again.body[0].id]);
  assertRefused(await act(id, 'fork', { disks: [a] }), [409, 'already_exists', /^disks: there is a disk/u]);
  const twice = newName();
  const same = await act(id, 'fork', { count: 2, disks: [twice, twice] });
  assertRefused(same, [409, 'already_exists', /^disks: /u]);
  assertRefused(await act(id, 'fork', { count: 2, disks: [twice] }), [400, 'invalid_request', /^disks: /u]);
  const plain = await harness.create();
  assertRefused(await act(plain.id, 'fork', { disks: ['x'] }), [
    400,
    'invalid_request',
    /^disks: .* no disk/u,
  ]);
  assertRefused(await call('DELETE', `/v1/disks/${disk}`), [409, 'disk_in_use', new RegExp(id, 'u')]);
});

test('a child that fails leaves no disk', async () => {
  const { disk, id } = await createBoth();
  harness.runner.captures.onChild = (_, index) => {
    if (index === 1) throw new AppError('capacity', 'no room');
  };
  const { status, body } = await act(id, 'fork', { count: 3 });
  assert.equal(status, 207);
  assert.deepEqual(
    body.map((child: Partial<SandboxRecord>) => child.disk?.name),
    [`${disk}-1`, undefined, `${disk}-3`],
  );
  assert.equal((await call('GET', `/v1/disks/${disk}-2`)).status, 404);
});

test('a snapshot keeps the version of the disk, and a restore continues on a fork of it', async () => {
  const { disk, id } = await createBoth();
  const saved = (await act(id, 'snapshot')).body;
  assert.deepEqual(saved.disk, { name: disk, version: 2, size_gb: 5 });
  const restore = (more: object = {}) => call('POST', '/v1/runs/restore', { snapshot_id: saved.id, ...more });
  const first = await restore();
  assert.deepEqual([first.status, first.body.disk.name], [201, `${disk}-1`]);
  const named = newName();
  assert.equal((await restore({ disk: named })).body.disk.name, named);
  assert.equal((await getDisk(named)).parent, disk);
  assertRefused(await restore({ disk: named }), [409, 'already_exists', /^disk: /u]);
  const plain = (await act((await harness.create()).id, 'snapshot')).body;
  const body = { snapshot_id: plain.id, disk: newName() };
  assertRefused(await call('POST', '/v1/runs/restore', body), [
    400,
    'invalid_request',
    /^disk: .* had no disk$/u,
  ]);
  for (const child of [first.body.id, (await getDisk(named)).attached_to, id]) await destroy(child);
  for (const name of [`${disk}-1`, named, disk])
    assert.equal((await call('DELETE', `/v1/disks/${name}`)).status, 204);
  assertRefused(await restore(), [409, 'snapshot_unusable', /was deleted$/u]);
});

test('a rollback also rolls the disk back, and is refused for a snapshot with another disk', async () => {
  const { disk, id } = await createBoth();
  const saved = (await act(id, 'snapshot')).body;
  const size = async () => (await call('GET', `/v1/disks/${disk}`)).body.size_gb as number;
  const before = await size();
  assert.equal((await call('PATCH', `/v1/disks/${disk}`, { size_gb: before + 1 })).body.size_gb, before + 1);
  const rolled = await act(id, 'rollback', { snapshot_id: saved.id });
  assert.equal(rolled.status, 200);
  assert.equal(await size(), before + 1);
  const done = harness.runner.captures.rollbacks.get(id)?.at(-1);
  assert.equal(done?.workspace?.version, saved.disk.version);
  const [child] = (await act(id, 'fork')).body;
  const refused = await act(child.id, 'rollback', { snapshot_id: saved.id });
  assertRefused(refused, [409, 'invalid_state', new RegExp(`with the disk "${disk}", which is not`, 'u')]);
});

test('a snapshot of a disk is noted in the log of the sandbox that has it', async () => {
  const { disk, id } = await createBoth();
  const taken = (await call('POST', `/v1/disks/${disk}/snapshots`, { name: 'v1' })).body;
  const entry = (await listAudit(id)).at(-1);
  assert.deepEqual(
    [entry?.event, entry?.data],
    ['disk.snapshot', { disk, snapshot: 'v1', version: taken.version }],
  );
});

test('an idle sandbox that is hibernated or destroyed frees its disk', async () => {
  const { disk, id } = await createBoth({ timeout: 1 });
  await harness.waitForRecord(id, ({ status }) => status === 'destroyed');
  await waitForDisk(disk, 'available');
});

test('a control that dies during a create or a resume frees the disk', async () => {
  await using own = await startHarness({ shutdownDeadlineMs: 20, diskDetachDeadlineMs: 500 });
  const status = async (name: string) => (await own.call('GET', `/v1/disks/${name}`)).body.status as string;
  const dieDuring = async (ask: () => Promise<unknown>, hook: (hold: () => Promise<void>) => void) => {
    const reached = Promise.withResolvers<void>();
    const gate = Promise.withResolvers<void>();
    hook(() => {
      reached.resolve();
      return gate.promise;
    });
    const asked = ask().catch(() => undefined);
    await reached.promise;
    await own.stopControl();
    gate.reject(new AppError('unavailable', 'the runner restarts'));
    await asked;
    own.runner.onCreate = () => undefined;
    own.runner.captures.reset();
    await own.startControl();
  };
  await own.call('POST', '/v1/disks', { body: { name: 'data', size_gb: 1 } });
  const body = { image: 'node:22-slim', disk: 'data' };
  await dieDuring(
    () => own.call('POST', '/v1/runs', { body }),
    (hold) => (own.runner.onCreate = hold),
  );
  await waitFor('the disk to be free', async () => (await status('data')) === 'available');
  const { id } = await own.create({ disk: 'data' });
  await own.call('POST', `/v1/runs/${id}/hibernate`);
  await waitFor('the disk to be free', async () => (await status('data')) === 'available');
  await dieDuring(
    () => own.call('POST', `/v1/runs/${id}/resume?disk=fresh`),
    (hold) => (own.runner.captures.onRestore = hold),
  );
  await waitFor('the disk to be free', async () => (await status('data')) === 'available');
  assert.equal((await own.call('GET', `/v1/runs/${id}`)).body.status, 'hibernated');
});
