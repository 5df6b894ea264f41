/** The cache of the steps of builds, through the real API, with a runner that remembers the images that it made. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { layOutTar } from '../testing/tar-of-files.ts';
import { BuiltImages } from '../images/built-images.ts';
import { FleetImages } from '../images/fleet-images.ts';
import { OwnedRunner } from '../runners/owned-runner.ts';
import { Runners } from '../runners/runners.ts';
import { RunnerClient } from '../placement/runner-client.ts';
import { RunnerConnection } from '../placement/runner-connection.ts';
import { SYSTEM_CLOCK } from '../time/clock.ts';
import { openOrganizationAudit } from '../testing/organization-log.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

const BUILD = '/v1/images/build';
const GIB = 2 ** 30;

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(() => {
  harness.runner.built.onCommit = () => undefined;
  harness.runner.built.onKeep = () => undefined;
  harness.runner.built.sizeBytes = 1000;
});

interface Result {
  id: string;
  status: string;
  image: string | null;
  run_id: string;
  steps_done: number;
  error: { message: string } | null;
  /** Whether each step was cached. */
  cached: boolean[];
  notes: string;
  /** The commands that ran. */
  commands: string[];
}

/** Builds, and ends each command as soon as it has run for a moment. */
async function build(body: Record<string, unknown>, apiKey?: string): Promise<Result> {
  const { runner } = harness;
  const key = apiKey === undefined ? {} : { apiKey };
  const whole = { from: 'node:22-slim', name: 'app:1', detached: true, ...body };
  const started = await harness.call('POST', BUILD, { body: whole, ...key });
  assert.equal(started.status, 201, JSON.stringify(started.body));
  const { id, run_id: sandboxId } = started.body as Result;
  const commands: string[] = [];
  await waitFor('the end of the build', async () => {
    for (const command of runner.commands.list(sandboxId)) {
      if (command.exit !== undefined) continue;
      commands.push(String(command.head['command']));
      runner.commands.end(sandboxId, command, command.head['command'] === 'false' ? 1 : 0);
    }
    return (await harness.call('GET', `/v1/images/builds/${id}`, key)).body.status !== 'running';
  });
  const { body: ended } = await harness.call('GET', `/v1/images/builds/${id}`, key);
  const { body: log } = await harness.call('GET', `/v1/images/builds/${id}/log`, key);
  const events = log.events as { type: string; text: string; cached: boolean }[];
  const cached = events.filter(({ type }) => type === 'step').map((event) => event.cached);
  const notes = events
    .filter(({ type }) => type === 'note')
    .map(({ text }) => text)
    .join('\n');
  return { ...ended, cached, notes, commands };
}

const runs = (...commands: string[]) => commands.map((run) => ({ run }));
const digestOf = ({ image }: Result): string => (image ?? '').split('@')[1] ?? '';
const creates = (): number => harness.runner.creates.length;

test('a build whose steps are all cached has the same image, and creates no sandbox', async () => {
  const steps = [{ env: { A: 'x' } }, { run: 'whole one' }, { run: 'whole two' }, { user: 'app' }];
  const first = await build({ steps });
  assert.deepEqual([first.status, first.cached], ['done', [false, false, false, false]]);
  const before = creates();
  const second = await build({ steps, name: 'other:1' });
  assert.deepEqual([second.status, second.cached, second.steps_done], ['done', [true, true, true, true], 4]);
  assert.deepEqual([second.commands, creates()], [[], before]);
  assert.equal(digestOf(second), digestOf(first));
  await using db = harness.openDatabase();
  const names = await db
    .selectFrom('built_images')
    .select('runner_id')
    .where('digest', '=', digestOf(first))
    .execute();
  assert.deepEqual(
    names.map((row) => row.runner_id),
    [harness.runner.id, harness.runner.id],
    'both names are at the runner that has the image',
  );
  const listed = await harness.call('GET', '/v1/images/builds');
  assert.equal(listed.status, 200);
  assert.equal((await harness.call('GET', `/v1/runs/${second.run_id}`)).status, 404);
});

test('a changed step runs with those after it, in a sandbox of what the steps before it have left', async () => {
  const first = await build({ steps: runs('prefix one', 'old'), name: 'prefix:1' });
  assert.equal(harness.runner.built.commits.at(-2)?.kept, false, 'the first step is saved');
  const saved = harness.runner.built.commits.length - 1;
  const second = await build({
    steps: [...runs('prefix one'), { env: { B: 'y' } }, ...runs('new')],
    name: 'prefix:1',
  });
  assert.deepEqual([second.cached, second.commands], [[true, false, false], ['new']]);
  const from = harness.runner.creates.at(-1)?.image ?? '';
  assert.match(from, new RegExp(`^built/step@sha256:0*${saved}$`, 'u'));
  assert.match(second.notes, /from the cached steps/u);
  const { config } = harness.runner.built.commits.at(-1) ?? {};
  assert.deepEqual(config?.env, { PATH: '/bin', B: 'y' });
  assert.notEqual(digestOf(second), digestOf(first));
});

test('the environment, the directory and the user before a step are part of its key, and so is the base image', async () => {
  await build({ steps: runs('scoped') });
  for (const before of [{ env: { A: '1' } }, { workdir: '/w' }, { user: 'app' }]) {
    const { cached } = await build({ steps: [before, ...runs('scoped')] });
    assert.deepEqual(cached, [false, false], JSON.stringify(before));
  }
  const dockerfile = 'FROM node:22-slim\nARG A\nRUN echo $A';
  const values = ['1', '2', '1'];
  const cached = [];
  for (const value of values)
    cached.push((await build({ ...asDockerfile(dockerfile), build_args: { A: value } })).cached);
  assert.deepEqual(cached, [
    [false, false],
    [false, false],
    [true, true],
  ]);
});

function asDockerfile(dockerfile: string) {
  return { dockerfile, from: undefined };
}

test('files that are copied are part of the key by names, modes and bytes, and not by their times', async () => {
  const dockerfile = 'FROM node:22-slim\nRUN prepare\nCOPY app /app\nRUN finish';
  const buildWith = async (files: Parameters<typeof layOutTar>[0]): Promise<Result> => {
    const context = await harness.call('POST', '/v1/images/contexts', { raw: layOutTar(files) });
    assert.equal(context.status, 201, JSON.stringify(context.body));
    return build({ ...asDockerfile(dockerfile), context: context.body.id });
  };
  const file = { path: 'app/main', content: 'one', mode: 0o644 };
  await buildWith([file]);
  const same = await buildWith([
    { ...file, mtime: 12_345 },
    { path: 'README', content: 'not copied' },
  ]);
  assert.deepEqual(same.cached, [true, true, true]);
  for (const change of [
    [{ ...file, content: 'two' }],
    [{ ...file, mode: 0o755 }],
    [{ ...file, path: 'app/other' }],
  ]) {
    const { cached, commands } = await buildWith(change);
    assert.deepEqual([cached, commands], [[true, false, false], ['finish']], JSON.stringify(change));
  }
  const missing = await buildWith([{ path: 'other', content: 'x' }]);
  assert.match(missing.error?.message ?? '', /the context has no "app"/u);
});

test('a build after a failed one begins with the steps that were done', async () => {
  const failed = await build({ steps: runs('good', 'false') });
  assert.equal(failed.status, 'failed');
  const second = await build({ steps: runs('good', 'true') });
  assert.deepEqual([second.status, second.cached], ['done', [true, false]]);
});

test('no_cache runs all steps, and replaces what is cached', async () => {
  const steps = runs('fresh one', 'fresh two');
  const first = await build({ steps, name: 'fresh:1' });
  const second = await build({ steps, name: 'fresh:2', no_cache: true });
  assert.deepEqual(
    [second.cached, second.commands],
    [
      [false, false],
      ['fresh one', 'fresh two'],
    ],
  );
  assert.notEqual(digestOf(second), digestOf(first));
  const third = await build({ steps, name: 'fresh:3' });
  assert.equal(digestOf(third), digestOf(second));
  assert.ok(harness.runner.built.made.has(digestOf(first)), 'an image with a name stays');
});

test('another organization does not use what is cached, and cannot name it', async () => {
  const steps = runs('mine one', 'mine two');
  await build({ steps });
  const other = await harness.addOrganization();
  assert.deepEqual((await build({ steps }, other)).cached, [false, false]);
  for (const { digest, isKept } of harness.runner.built.made.values()) {
    if (isKept) continue;
    for (const apiKey of [undefined, other]) {
      const body = { image: `built/step@${digest}` };
      const answer = await harness.call('POST', '/v1/runs', { body, ...(apiKey && { apiKey }) });
      assert.equal(answer.status, 404, JSON.stringify(answer.body));
    }
  }
});

test('what the runner has evicted is built again', async () => {
  const steps = runs('gone one', 'gone two');
  await build({ steps });
  harness.runner.built.made.clear();
  const again = await build({ steps });
  assert.deepEqual([again.status, again.cached], ['done', [false, false]]);
});

test('an image that is evicted before it gets its name makes the build fail with a remedy', async () => {
  const steps = runs('late');
  await build({ steps, name: 'late:1' });
  harness.runner.built.onKeep = (digest) => void harness.runner.built.made.delete(digest);
  const second = await build({ steps, name: 'late:2' });
  assert.equal(second.status, 'failed');
  assert.match(second.error?.message ?? '', /removed before it got its name; build again/u);
});

test('a runner that answers no more while it makes an image is asked again', async () => {
  let left = 2;
  harness.runner.built.onCommit = ({ kept }) => {
    if (!kept && left-- > 0) throw new AppError('unavailable', 'the runner restarts');
  };
  const made = await build({ steps: runs('asked again', 'last') });
  assert.deepEqual([made.status, left], ['done', -1]);
  assert.doesNotMatch(made.notes, /not cached/u);
});

test('a step that cannot be saved does not fail its build', async () => {
  harness.runner.built.onCommit = ({ kept }) => {
    if (!kept) throw new AppError('capacity', 'the disk is full');
  };
  const made = await build({ steps: runs('unsaved', 'last') });
  assert.equal(made.status, 'done');
  assert.match(made.notes, /not cached: the disk is full/u);
});

test('a step that took less time than the last saving is not saved', async () => {
  harness.runner.built.onCommit = () => new Promise((resolve) => setTimeout(resolve, 2000));
  const first = harness.runner.built.commits.length;
  await build({ steps: runs('quick one', 'quick two', 'quick three') });
  const kept = harness.runner.built.commits.slice(first).map((commit) => commit.kept);
  assert.deepEqual(kept, [false, true]);
});

test('cached steps over the limit of an organization go by their last use, and named images do not count', async () => {
  const apiKey = await harness.addOrganization();
  harness.runner.built.onCommit = ({ kept }) => {
    harness.runner.built.sizeBytes = kept ? 1000 : 6 * GIB;
  };
  await build({ steps: runs('large a', 'end'), name: 'a:1' }, apiKey);
  const firstSaved = [...harness.runner.built.made.values()].at(-2)?.digest ?? '';
  await build({ steps: runs('large b', 'end'), name: 'b:1' }, apiKey);
  await waitFor('the eviction', () => !harness.runner.built.made.has(firstSaved));
  assert.deepEqual((await build({ steps: runs('large b', 'else'), name: 'c:1' }, apiKey)).cached, [
    true,
    false,
  ]);
  assert.deepEqual((await build({ steps: runs('large a', 'else'), name: 'd:1' }, apiKey)).cached, [
    false,
    false,
  ]);
});

test('an image whose name stands for another one now may be evicted, and builds can still begin with it', async () => {
  const first = await build({ steps: runs('replaced'), name: 'replaced:1' });
  await build({ steps: runs('replacing'), name: 'replaced:1' });
  assert.equal(harness.runner.built.made.get(digestOf(first))?.isKept, false);
  const again = await build({ steps: runs('replaced'), name: 'replaced:1' });
  assert.deepEqual([again.cached, digestOf(again)], [[true], digestOf(first)]);
  assert.equal(harness.runner.built.made.get(digestOf(first))?.isKept, true);
});

test('a deleted image is gone from the cache, too', async () => {
  const steps = runs('deleted');
  const first = await build({ steps, name: 'deleted:1' });
  assert.equal((await harness.call('DELETE', '/v1/images?image=built/deleted:1')).status, 200);
  assert.equal(harness.runner.built.made.has(digestOf(first)), false);
  assert.deepEqual((await build({ steps, name: 'deleted:1' })).cached, [false]);
});

test('images that the database does not know may be evicted, and are not removed', async () => {
  const steps = runs('known one', 'known two');
  await build({ steps, name: 'known:1' });
  const { built, socketPath } = harness.runner;
  const known = [...built.made.values()].filter(({ isKept }) => isKept);
  const unknown = `sha256:${'9'.repeat(64)}`;
  const busy = `sha256:${'8'.repeat(64)}`;
  const config = { env: {}, user: '', workdir: '' };
  const image = {
    size_bytes: 1,
    organization: 'org1',
    config,
    isKept: true,
    isLinked: false,
    isReleased: false,
  };
  built.made.set(unknown, { ...image, digest: unknown, build: 'build1' });
  built.made.set(busy, { ...image, digest: busy, build: 'build2' });
  await using db = harness.openDatabase();
  using connection = new RunnerConnection({ kind: 'socket', path: socketPath }, harness.log);
  const runners = new Runners();
  runners.add(new OwnedRunner('runner-1', new RunnerClient(connection), SYSTEM_CLOCK));
  const audit = openOrganizationAudit(harness);
  const images = new BuiltImages({
    db,
    audit,
    fleet: new FleetImages(runners),
    objects: { isStored: async () => false },
    isOwned: async () => true,
    clock: SYSTEM_CLOCK,
    log: harness.log,
  });
  await images.exposeUnknown((id) => id === 'build2');
  assert.equal(built.made.get(unknown)?.isKept, false);
  assert.equal(built.made.get(busy)?.isKept, true, 'its build runs');
  assert.deepEqual(
    known.map(({ digest }) => built.made.get(digest)?.isKept),
    known.map(() => true),
  );
});
