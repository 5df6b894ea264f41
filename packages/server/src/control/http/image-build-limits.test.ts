/** Hostile builds, failures and full limits: through the real API, with guests that the test controls. */
import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import type { FakeGuestCommand } from '../testing/fakes/fake-commands.ts';
import { INVITATION, startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { openOrganizationAudit, verifyOrganizationLog } from '../testing/organization-log.ts';
import { listEvents } from '../testing/requests/events-client.ts';
import { AccountClient } from '../testing/requests/account-client.ts';

const BUILD = '/v1/images/build';
const GIB = 2 ** 30;
const DIGEST = `sha256:${'7'.repeat(64)}`;
let harness: ControlHarness;
let apiKey: string;
before(async () => {
  harness = await startHarness({ openStreamsPerOrganization: 2 });
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(async () => {
  apiKey = await harness.addOrganization();
});
afterEach(() => {
  const { runner } = harness;
  runner.onCreate = () => undefined;
  runner.onDelete = () => undefined;
  runner.built.onCommit = () => undefined;
  runner.built.onKeep = () => undefined;
  runner.built.sizeBytes = 1000;
});

const start = (body: Record<string, unknown>, key = apiKey) =>
  harness.call('POST', BUILD, {
    body: { from: 'node:22-slim', name: 'app:1', steps: [], detached: true, ...body },
    apiKey: key,
  });
const read = async (id: string, key = apiKey) =>
  (await harness.call('GET', `/v1/images/builds/${id}`, { apiKey: key })).body;

async function waitForEnd(id: string, key = apiKey) {
  await waitFor('the end of the build', async () => (await read(id, key)).status !== 'running');
  return read(id, key);
}

async function nextCommand(sandboxId: string): Promise<FakeGuestCommand> {
  const find = () => harness.runner.commands.list(sandboxId).find(({ exit }) => exit === undefined);
  await waitFor('a command', () => find() !== undefined);
  const found = find();
  assert.ok(found);
  return found;
}

const digestOf = ({ image }: { image: string }): string => image.split('@')[1] ?? '';
const isCleaned = async (id: string): Promise<boolean> => {
  await using db = harness.openDatabase();
  const row = await db.selectFrom('image_builds').select('cleaned').where('id', '=', id).executeTakeFirst();
  return row?.cleaned === true;
};

test('output that PostgreSQL does not store ends a build as any other, with its last event', async () => {
  const { body } = await start({ steps: [{ run: 'printf' }] });
  const command = await nextCommand(body.run_id);
  harness.runner.commands.print(command, 'a\0b');
  harness.runner.commands.end(body.run_id, command, 1);
  const ended = await waitForEnd(body.id);
  assert.match(ended.error.message, /its last output:\na\u{FFFD}b$/u);
  const log = await harness.call('GET', `/v1/images/builds/${body.id}/log`, { apiKey });
  assert.deepEqual(log.body.events.at(-1).build, ended);
});

test('the end of a build is an event of its team', async () => {
  const done = await waitForEnd((await start({ name: 'told:1' })).body.id);
  const { body } = await start({ name: 'told:2', steps: [{ run: 'false' }] });
  harness.runner.commands.end(body.run_id, await nextCommand(body.run_id), 1);
  await waitForEnd(body.id);
  const list = () => listEvents(harness, '?type=image.build_ended', { apiKey });
  await waitFor('the events', async () => (await list()).length === 2);
  const events = await list();
  assert.ok(events.every(({ team_id }) => team_id !== null));
  assert.deepEqual(
    events.map(({ data }) => data),
    [
      { build_id: done.id, image: 'built/told:1', status: 'done', digest: digestOf(done), error: null },
      { build_id: body.id, image: 'built/told:2', status: 'failed', digest: null, error: 'build_failed' },
    ],
  );
});

test('the limit of builds that run holds for requests at the same time', async () => {
  const asked = Array.from({ length: 12 }, (_, index) =>
    start({ name: `many:${index}`, steps: [{ run: 'wait' }] }),
  );
  const answers = await Promise.all(asked);
  const begun = answers.filter(({ status }) => status === 201);
  assert.equal(begun.length, 8);
  for (const { status, body } of answers)
    if (status !== 201) assert.deepEqual([status, body.error.code], [429, 'capacity']);
  const cancel = ({ body }: { body: { id: string } }) =>
    harness.call('DELETE', `/v1/images/builds/${body.id}`, { apiKey });
  await Promise.all(begun.map(cancel));
  assert.equal((await start({ name: 'after:1' })).status, 201);
});

test('a build is cancelled in the middle of a create, and nothing is left of it', async () => {
  const gate = Promise.withResolvers<void>();
  harness.runner.onCreate = () => gate.promise;
  const { body } = await start({ steps: [{ run: 'x' }] });
  await waitFor('the create', () => harness.runner.creates.length > 0);
  await waitFor(
    'the sandbox',
    async () => (await harness.call('GET', `/v1/runs/${body.run_id}`, { apiKey })).status === 200,
  );
  const cancelled = await harness.call('DELETE', `/v1/images/builds/${body.id}`, { apiKey });
  assert.equal(cancelled.body.status, 'cancelled');
  gate.resolve();
  await waitFor('the destroy', async () => {
    const { body: run } = await harness.call('GET', `/v1/runs/${body.run_id}`, { apiKey });
    return ['destroyed', 'failed'].includes(run.status);
  });
  await waitFor('the clean-up', () => isCleaned(body.id), 20_000);
  assert.equal(harness.runner.vms.has(body.run_id), false);
});

test('a sandbox that cannot be destroyed at once is destroyed later', async () => {
  const { body } = await start({ steps: [{ run: 'x' }] });
  const command = await nextCommand(body.run_id);
  let failures = 2;
  harness.runner.onDelete = () => {
    if (failures-- > 0) throw new AppError('internal', 'the runner has a fault');
  };
  harness.runner.commands.end(body.run_id, command, 1);
  await waitForEnd(body.id);
  await waitFor('the clean-up', () => isCleaned(body.id), 20_000);
  assert.ok(failures < 0);
  assert.equal(harness.runner.vms.has(body.run_id), false);
});

test('what a build made and did not name is given up', async () => {
  const { built } = harness.runner;
  const kept = built.made.size;
  // The image exists, and its name is refused.
  const { body } = await start({ name: 'lost:1', steps: [{ run: 'x' }] });
  const command = await nextCommand(body.run_id);
  await using db = harness.openDatabase();
  const { organization_id, team_id } = await db
    .selectFrom('image_builds')
    .selectAll()
    .where('id', '=', body.id)
    .executeTakeFirstOrThrow();
  const row = { organization_id, team_id, digest: `sha256:${'6'.repeat(64)}`, size_bytes: 1, built_at: 1 };
  const names = Array.from({ length: 200 }, (_, index) => ({ ...row, name: `built/full:${index}` }));
  await db.insertInto('built_images').values(names).execute();
  harness.runner.commands.end(body.run_id, command, 0);
  const ended = await waitForEnd(body.id);
  assert.deepEqual([ended.status, ended.error.code], ['failed', 'capacity']);
  assert.match(ended.error.message, /200 built images, which is the limit/u);
  await waitFor('the clean-up', () => isCleaned(body.id));
  assert.deepEqual(
    [...built.made.values()].slice(kept).filter(({ build }) => build === body.id),
    [],
  );
  const refused = await start({ name: 'lost:2' });
  assert.deepEqual([refused.status, refused.body.error.code], [429, 'capacity']);
});

test('a build that a killed control has left is failed at the start, and its image and sandbox go', async () => {
  const { body } = await start({ name: 'killed:1', steps: [{ run: 'x' }] });
  await nextCommand(body.run_id);
  await harness.call('DELETE', `/v1/images/builds/${body.id}`, { apiKey });
  await waitFor('the clean-up', () => isCleaned(body.id));
  await harness.stopControl();
  const { built } = harness.runner;
  await using db = harness.openDatabase();
  // As a control leaves it that is killed after the runner has made the image.
  await db.deleteFrom('image_build_events').where('build_id', '=', body.id).execute();
  const running = { state: 'running', cleaned: false, ended_at: null } as const;
  const row = await db
    .updateTable('image_builds')
    .set(running)
    .where('id', '=', body.id)
    .returningAll()
    .executeTakeFirstOrThrow();
  const config = { env: {}, user: '', workdir: '' };
  const made = {
    organization: row.organization_id,
    build: body.id,
    config,
    isLinked: false,
    isReleased: false,
  };
  built.made.set(DIGEST, { ...made, digest: DIGEST, size_bytes: 1, isKept: true });
  await harness.startControl();
  const ended = await read(body.id);
  assert.deepEqual([ended.status, ended.error.code], ['failed', 'unavailable']);
  const log = await harness.call('GET', `/v1/images/builds/${body.id}/log`, { apiKey });
  assert.equal(log.body.events.at(-1).type, 'end');
  await waitFor('the clean-up', () => isCleaned(body.id));
  assert.ok(built.released.includes(DIGEST));
});

test('images that are deleted count as long as a sandbox or a snapshot holds them', async () => {
  const { built } = harness.runner;
  built.sizeBytes = 20 * GIB;
  const { body } = await start({ name: 'held:1' });
  const digest = digestOf(await waitForEnd(body.id));
  const image = built.made.get(digest);
  assert.ok(image);
  image.isLinked = true;
  assert.equal((await harness.call('DELETE', '/v1/images?image=held:1', { apiKey })).status, 200);
  const refused = await start({ name: 'held:2' });
  assert.deepEqual([refused.status, refused.body.error.code], [429, 'capacity']);
  built.made.delete(digest);
  const next = await start({ name: 'held:2' });
  assert.equal((await waitForEnd(next.body.id)).status, 'done');
});

test('builds of one organization at the same time share the room that is left', async () => {
  const { built } = harness.runner;
  const rooms: number[] = [];
  built.sizeBytes = 5 * GIB;
  built.onCommit = async ({ max_bytes }) => {
    rooms.push(max_bytes / GIB);
    await delay(50);
  };
  const started = await Promise.all([1, 2, 3].map((number) => start({ name: `room:${number}` })));
  for (const { body } of started) assert.equal((await waitForEnd(body.id)).status, 'done');
  assert.deepEqual(rooms, [20, 15, 10]);
});

test('an image may be larger than all cached steps together', async () => {
  const { built } = harness.runner;
  const build = async (name: string, gib: number) => {
    built.sizeBytes = gib * GIB;
    const { body } = await start({ name, steps: [{ run: name }] });
    harness.runner.commands.end(body.run_id, await nextCommand(body.run_id), 0);
    return body.id as string;
  };
  const small = await waitForEnd(await build('small:1', 1));
  assert.equal((await waitForEnd(await build('large:1', 12))).status, 'done');
  assert.equal((await harness.call('DELETE', '/v1/images?image=large:1', { apiKey })).status, 200);
  const again = await start({ name: 'small:2', steps: [{ run: 'small:1' }] });
  const ended = await waitForEnd(again.body.id);
  assert.equal(digestOf(ended), digestOf(small), 'the steps that fit are still cached');
  const both = [await build('both:1', 6), await build('both:2', 6)];
  for (const id of both) assert.equal((await waitForEnd(id)).status, 'done');
});

test('a runner that is away for a moment when an image gets its name is asked again', async () => {
  const { built } = harness.runner;
  let failures = 2;
  built.onKeep = () => {
    if (failures-- > 0) throw new AppError('unavailable', 'the runner restarts');
  };
  const { body } = await start({ name: 'asked:1' });
  assert.equal((await waitForEnd(body.id)).status, 'done');
  assert.ok(failures < 0);
});

test('the log of the organization is full before a build begins, and not at its end', async () => {
  const { body } = await start({ name: 'noted:1', steps: [{ run: 'x' }] });
  const command = await nextCommand(body.run_id);
  const audit = openOrganizationAudit(harness);
  await using db = harness.openDatabase();
  const { organization_id: organizationId } = await db
    .selectFrom('image_builds')
    .selectAll()
    .where('id', '=', body.id)
    .executeTakeFirstOrThrow();
  const by = { type: 'service', id: null, address: null } as const;
  const note = { event: 'registry.deleted', data: { registry: 'one.test' } } as const;
  await db.transaction().execute(async (transaction) => {
    const notes = Array.from({ length: 2000 }, () => note);
    await audit.write(transaction, { organizationId, by, notes });
  });
  harness.runner.commands.end(body.run_id, command, 0);
  assert.equal((await waitForEnd(body.id)).status, 'done');
  const refused = await start({ name: 'noted:2' });
  assert.deepEqual([refused.status, refused.body.error.code], [429, 'rate_limited']);
});

test('only the newest builds of an organization are kept', async () => {
  const first = await waitForEnd((await start({ name: 'old:1' })).body.id);
  await using db = harness.openDatabase();
  const row = await db
    .selectFrom('image_builds')
    .selectAll()
    .where('id', '=', first.id)
    .executeTakeFirstOrThrow();
  const rows = Array.from({ length: 120 }, (_, index) => ({
    ...row,
    id: `build${String(index).padStart(20, '0')}`,
    created_at: index,
    cleaned: true,
  }));
  await db.insertInto('image_builds').values(rows).execute();
  await waitForEnd((await start({ name: 'new:1' })).body.id);
  const count = async () =>
    (
      await db
        .selectFrom('image_builds')
        .select('id')
        .where('organization_id', '=', row.organization_id)
        .execute()
    ).length;
  await waitFor('the trim', async () => (await count()) === 100);
  assert.equal((await read(first.id)).status, 'done');
});

test('a request that gets no stream begins no build', async () => {
  const streams = [1, 2].map((number) =>
    harness.call('POST', BUILD, {
      body: { from: 'node:22-slim', name: `stream:${number}`, steps: [{ run: 'wait' }] },
      apiKey,
    }),
  );
  const list = async (): Promise<{ id: string }[]> =>
    (await harness.call('GET', '/v1/images/builds', { apiKey })).body;
  await waitFor('both builds', async () => (await list()).length === 2);
  const refused = await start({ name: 'stream:3', detached: false });
  assert.deepEqual([refused.status, refused.body.error.code], [429, 'rate_limited']);
  const builds = await list();
  assert.equal(builds.length, 2);
  for (const { id } of builds) await harness.call('DELETE', `/v1/images/builds/${id}`, { apiKey });
  for (const { body } of await Promise.all(streams)) assert.equal(body.status, 'cancelled');
});

test('a key that is limited to a team neither replaces nor deletes what another team has built', async () => {
  const owner = await AccountClient.signUp(harness, { invitation: INVITATION });
  const makeKeys = async (name: string) => {
    const { body } = await owner.call('POST', `${owner.organization}/teams`, { name });
    const keys = `${owner.organization}/teams/${body.id}/keys`;
    const make = async (limits: object): Promise<string> =>
      (await owner.call('POST', keys, { name: 'a key', ...limits })).body.key;
    return { wide: await make({}), own: await make({ team_only: true }) };
  };
  const [first, second] = [await makeKeys('first'), await makeKeys('second')];
  const steps = [{ run: 'shared' }];
  const build = async (body: Record<string, unknown>, key: string) => {
    const started = await start(body, key);
    assert.equal(started.status, 201, JSON.stringify(started.body));
    for (const command of harness.runner.commands.list(started.body.run_id))
      harness.runner.commands.end(started.body.run_id, command, 0);
    await waitFor('the end', async () => {
      for (const command of harness.runner.commands.list(started.body.run_id))
        if (command.exit === undefined) harness.runner.commands.end(started.body.run_id, command, 0);
      return (await read(started.body.id, key)).status !== 'running';
    });
    return read(started.body.id, key);
  };
  const made = await build({ name: 'base:1', steps }, first.own);
  assert.equal(made.status, 'done', JSON.stringify(made));
  const refused = await start({ name: 'base:1', steps }, second.own);
  assert.deepEqual([refused.status, refused.body.error.code], [403, 'forbidden']);
  const removal = '/v1/images?image=base:1';
  assert.equal((await harness.call('DELETE', removal, { apiKey: second.own })).status, 403);
  const ran = async (id: string, key: string): Promise<boolean> =>
    (await harness.call('GET', `/v1/images/builds/${id}/log`, { apiKey: key })).body.events.some(
      ({ type, cached }: { type: string; cached: boolean }) => type === 'step' && !cached,
    );
  const other = await build({ name: 'other:1', steps }, second.own);
  assert.equal(await ran(other.id, second.own), true, "a step of another team's sandbox is not reused");
  const again = await build({ name: 'again:1', steps, network: { allow: ['only.test'] } }, first.own);
  assert.equal(await ran(again.id, first.own), true, 'nor one that could reach more');
  assert.equal((await build({ name: 'base:1', steps }, second.wide)).status, 'done');
  // The name belongs to the team of its last build.
  assert.equal((await start({ name: 'base:1', steps }, first.own)).status, 403);
  assert.equal((await harness.call('DELETE', removal, { apiKey: first.own })).status, 403);
  assert.equal((await harness.call('DELETE', removal, { apiKey: second.own })).status, 200);
  const entries = (await verifyOrganizationLog(harness)).filter(({ event }) => event.startsWith('image.'));
  assert.deepEqual(
    entries.map(({ event, data }) => [event, data['image']]),
    [
      ['image.built', 'built/base:1'],
      ['image.built', 'built/other:1'],
      ['image.built', 'built/again:1'],
      ['image.built', 'built/base:1'],
      ['image.deleted', 'built/base:1'],
    ],
  );
  assert.equal(entries[3]?.data['replaced'], digestOf(made));
});
