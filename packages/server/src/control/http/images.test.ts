import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import type { PreparedImage, PrepareProgress } from '../../lib/runner-protocol.ts';
import { startHarness, waitFor, type CallOptions, type ControlHarness } from '../testing/control-harness.ts';

const BUILD = '/v1/images/build';
const AS_EVENTS = { accept: 'text/event-stream' };

function describeImage(name: string, hex: string): PreparedImage {
  const digest = `sha256:${hex.repeat(64)}`;
  const prepared_at = '2026-11-21T06:30:00.000Z';
  return { image: `${name}@${digest}`, digest, size_bytes: 1, prepared_at, status: 'ready' };
}

const NODE = describeImage('docker.io/library/node:22-slim', 'b');
const APP = describeImage('registry.test/team/app:1', 'c');
const BASE = describeImage('coppice/base:1', 'd');
const STEP: PrepareProgress = { type: 'step', step: 'pull', elapsed_ms: 5 };

function progressOf(done: number): PrepareProgress {
  return { type: 'progress', step: 'pull', done_bytes: done, total_bytes: 100, elapsed_ms: 5 + done };
}

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(() => {
  harness.runner.images = [];
  harness.runner.progress = [];
});

function readEvents(text: string): unknown[] {
  return [...text.matchAll(/^data: (.*)$/gmu)].map(([, data]) => JSON.parse(data ?? '') as unknown);
}

async function build(image: string, options: CallOptions = {}) {
  return harness.call('POST', BUILD, { body: { image }, ...options });
}

async function listNames(apiKey: string): Promise<string[]> {
  const { body } = await harness.call('GET', '/v1/images', { apiKey });
  return (body as { image: string }[]).map(({ image }) => image);
}

test('a build answers the record, or streams steps and progress with the record last', async () => {
  harness.runner.progress = [STEP, progressOf(50), { type: 'done', image: NODE }];
  assert.deepEqual((await build('node:22-slim')).body, NODE);
  const stream = await harness.fetch('POST', BUILD, { body: { image: 'node:22-slim' }, headers: AS_EVENTS });
  assert.equal(stream.headers.get('content-type'), 'text/event-stream');
  assert.match(stream.headers.get('x-request-id') ?? '', /^req/);
  assert.deepEqual(readEvents(await stream.text()), [STEP, progressOf(50), { type: 'done', image: NODE }]);
});

test('a build that fails says why in both forms, as the last event', async () => {
  harness.runner.progress = [STEP, { type: 'error', error: { code: 'image_not_found', message: 'no such' } }];
  const failed = await build('node:22-slim');
  assert.deepEqual([failed.status, failed.body.error.code], [404, 'image_not_found']);
  const stream = await harness.fetch('POST', BUILD, { body: { image: 'node:22-slim' }, headers: AS_EVENTS });
  const [, last] = readEvents(await stream.text()) as [
    unknown,
    { type: string; error: Record<string, string> },
  ];
  assert.deepEqual(
    [last.type, last.error['code'], last.error['message']],
    ['error', 'image_not_found', 'no such'],
  );
  assert.equal(last.error['request_id'], stream.headers.get('x-request-id'));
});

test('a runner that stops in the middle is told as an event too', async () => {
  harness.runner.progress = [STEP];
  const stream = await harness.fetch('POST', BUILD, { body: { image: 'node:22-slim' }, headers: AS_EVENTS });
  const last = readEvents(await stream.text()).at(-1) as { type: string; error: { code: string } };
  assert.deepEqual([last.type, last.error.code], ['error', 'unavailable']);
});

test('a preparation goes on when the client leaves, and its image is then the organization’s', async () => {
  const apiKey = await harness.addOrganization();
  const left = Promise.withResolvers<undefined>();
  let isFollowed = false;
  async function* prepare(): AsyncGenerator<PrepareProgress> {
    yield STEP;
    await left.promise;
    yield progressOf(50);
    yield { type: 'done', image: NODE };
    isFollowed = true;
  }
  harness.runner.progress = prepare();
  harness.runner.images = [NODE];
  const client = new AbortController();
  const options = { body: { image: 'node:22-slim' }, headers: AS_EVENTS, apiKey, signal: client.signal };
  const stream = await harness.fetch('POST', BUILD, options);
  await stream.body?.getReader().read();
  client.abort();
  await waitFor('the service to see it', () =>
    harness.logLines.some((line) => line.includes('ended before the answer') && line.includes(BUILD)),
  );
  left.resolve(undefined);
  await waitFor('the image to be listed', async () => (await listNames(apiKey)).includes(NODE.image));
  assert.ok(isFollowed);
});

test('an organization is shown what it built or created from, by its own names, and what is built in', async () => {
  const [mine, theirs] = [await harness.addOrganization(), await harness.addOrganization()];
  harness.runner.images = [APP, BASE, NODE];
  assert.deepEqual(await listNames(mine), [BASE.image]);
  harness.runner.progress = [{ type: 'done', image: NODE }];
  await build('node:22-slim', { apiKey: mine });
  assert.deepEqual(await listNames(mine), [BASE.image, NODE.image]);
  assert.deepEqual(await listNames(theirs), [BASE.image]);

  // The same content under a name of theirs: each sees its own name only.
  const alias = { ...NODE, image: `registry.test/secret/name:1@${NODE.digest}` };
  harness.runner.progress = [{ type: 'done', image: alias }];
  await build('registry.test/secret/name:1', { apiKey: theirs });
  harness.runner.images = [alias, BASE, NODE];
  assert.deepEqual(await listNames(mine), [BASE.image, NODE.image]);
  assert.deepEqual(await listNames(theirs), [BASE.image, alias.image]);

  harness.runner.images = [BASE];
  assert.deepEqual(await listNames(mine), [BASE.image]);
});

test('a create makes its image one of the organization’s, a failed build does not', async () => {
  const apiKey = await harness.addOrganization();
  const answer = await harness.call('POST', '/v1/runs', { apiKey, body: { image: 'app:1' } });
  const created = describeImage('registry.test/library/app:1', 'a');
  assert.equal(answer.body.image, created.image);
  harness.runner.images = [APP, created];
  harness.runner.progress = [{ type: 'error', error: { code: 'image_not_found', message: 'no such' } }];
  await build('registry.test/team/app:1', { apiKey });
  assert.deepEqual(await listNames(apiKey), [created.image]);
});

test('only the 1000 images that were used last are remembered', async () => {
  const apiKey = await harness.addOrganization();
  await using db = harness.openDatabase();
  const { organization_id } = await db
    .selectFrom('api_keys')
    .select('organization_id')
    .where('last4', '=', apiKey.slice(-4))
    .executeTakeFirstOrThrow();
  const rows = Array.from({ length: 1200 }, (_, index) => ({
    organization_id,
    image: `docker.io/library/old:${index}@${APP.digest}`,
    digest: APP.digest,
    last_used_at: index,
  }));
  await db.insertInto('image_uses').values(rows).execute();
  harness.runner.images = [APP, NODE];
  harness.runner.progress = [{ type: 'done', image: NODE }];
  await build('node:22-slim', { apiKey });
  const names = await listNames(apiKey);
  assert.equal(names.length, 1000);
  assert.ok(names.includes(NODE.image) && names.some((name) => name.includes('old:1199@')));
  assert.ok(!names.some((name) => name.includes('old:200@')));
});
