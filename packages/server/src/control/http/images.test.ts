import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import type { PreparedImage, PrepareProgress } from '../../lib/protocol/runner-protocol.ts';
import { startHarness, waitFor, type CallOptions, type ControlHarness } from '../testing/control-harness.ts';

const BUILD = '/v1/images/build';
const AS_EVENTS = { accept: 'text/event-stream' };

function describeImage(name: string, hex: string): PreparedImage {
  const digest = `sha256:${hex.repeat(64)}`;
  const prepared_at = '2026-11-21T06:30:00.000Z';
  const shapes = [{ vcpus: 1, mem_mib: 1024, disk_mib: 4096, max_disk_mib: 16_383 }];
  return { image: `${name}@${digest}`, digest, size_bytes: 1, prepared_at, status: 'ready', shapes };
}

const NODE = describeImage('docker.io/library/node:22-slim', 'b');
const APP = describeImage('registry.test/team/app:1', 'c');
const BASE = describeImage('coppice/base:1', 'd');
const STEP: PrepareProgress = { type: 'step', step: 'pull', elapsed_ms: 5 };

function progressOf(done: number): PrepareProgress {
  return { type: 'progress', step: 'pull', done_bytes: done, total_bytes: 100, elapsed_ms: 5 + done };
}

function finish(image: PreparedImage): PrepareProgress[] {
  return [
    { type: 'prepared', image },
    { type: 'done', image },
  ];
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

test('a build returns the record, or streams steps and progress with the record last', async () => {
  harness.runner.progress = [STEP, progressOf(50), ...finish(NODE)];
  assert.deepEqual((await build('node:22-slim')).body, NODE);
  const stream = await harness.fetch('POST', BUILD, { body: { image: 'node:22-slim' }, headers: AS_EVENTS });
  assert.equal(stream.headers.get('content-type'), 'text/event-stream');
  assert.match(stream.headers.get('x-request-id') ?? '', /^req/);
  assert.deepEqual(readEvents(await stream.text()), [STEP, progressOf(50), { type: 'done', image: NODE }]);
});

test('a build that fails gives the reason in both forms, as the last event', async () => {
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

test('a runner that stops during a build is reported as an event, too', async () => {
  harness.runner.progress = [STEP];
  const stream = await harness.fetch('POST', BUILD, { body: { image: 'node:22-slim' }, headers: AS_EVENTS });
  const last = readEvents(await stream.text()).at(-1) as { type: string; error: { code: string } };
  assert.deepEqual([last.type, last.error.code], ['error', 'unavailable']);
});

/** Starts a build and closes its connection after the first event. Resolves when the build has ended. */
async function buildAndLeave(
  apiKey: string,
  { before, after }: { before: PrepareProgress[]; after: PrepareProgress[] },
) {
  const left = Promise.withResolvers<undefined>();
  async function* prepare(): AsyncGenerator<PrepareProgress> {
    yield* before;
    await left.promise;
    yield* after;
    // A template that takes long.
    await new Promise(() => undefined);
  }
  harness.runner.progress = prepare();
  harness.runner.images = [NODE];
  const client = new AbortController();
  const options = { body: { image: 'node:22-slim' }, headers: AS_EVENTS, apiKey, signal: client.signal };
  const stream = await harness.fetch('POST', BUILD, options);
  await stream.body?.getReader().read();
  const closed = harness.runner.closedPreparations;
  const seen = harness.logLines.length;
  client.abort();
  await waitFor('the service to notice', () =>
    harness.logLines
      .slice(seen)
      .some((line) => line.includes('ended before the answer') && line.includes(BUILD)),
  );
  const isFollowed = harness.runner.closedPreparations === closed;
  left.resolve(undefined);
  await waitFor('the end of the build', () => harness.runner.closedPreparations === closed + 1);
  return { isFollowed };
}

const TEMPLATE_STEP: PrepareProgress = {
  type: 'step',
  step: 'template',
  shape: { vcpus: 1, mem_mib: 1024, disk_mib: 4096 },
  elapsed_ms: 9,
};

test('an image is prepared to the end after its client has left, and the organization has it then', async () => {
  const apiKey = await harness.addOrganization();
  const after: PrepareProgress[] = [progressOf(50), { type: 'prepared', image: NODE }];
  assert.deepEqual(await buildAndLeave(apiKey, { before: [STEP], after }), { isFollowed: true });
  assert.ok((await listNames(apiKey)).includes(NODE.image));
});

test('a client that leaves while templates are made stops them, and the organization has the image', async () => {
  const apiKey = await harness.addOrganization();
  const before: PrepareProgress[] = [{ type: 'prepared', image: NODE }, TEMPLATE_STEP];
  await buildAndLeave(apiKey, { before, after: [] });
  assert.ok((await listNames(apiKey)).includes(NODE.image));
});

test('shapes are passed on with their defaults, for the organization of the request', async () => {
  harness.runner.progress = [STEP, TEMPLATE_STEP, ...finish(NODE)];
  const body = { image: 'node:22-slim', shapes: [{ vcpus: 2, mem_mib: 512 }, { disk_mib: 8192 }] };
  const stream = await harness.fetch('POST', BUILD, { body, headers: AS_EVENTS });
  assert.deepEqual(readEvents(await stream.text()), [STEP, TEMPLATE_STEP, { type: 'done', image: NODE }]);
  const asked = harness.runner.preparations.at(-1);
  assert.deepEqual(asked?.shapes, [
    { vcpus: 2, mem_mib: 512, disk_mib: 4096 },
    { vcpus: 1, mem_mib: 1024, disk_mib: 8192 },
  ]);
  await harness.call('POST', '/v1/runs', { body: { image: 'app:1' } });
  assert.equal(harness.runner.creates.at(-1)?.organization, asked.organization);
  assert.match(asked.organization, /^org/u);
});

test('bad shapes are refused by field, as in a create', async () => {
  const nine = Array.from({ length: 9 }, () => ({}));
  for (const [shapes, message] of [
    [[{ vcpus: 0 }], /^shapes\[0\]\.vcpus: must be a whole number from 1 to 32/u],
    [[{}, { disk_mib: 63 }], /^shapes\[1\]\.disk_mib: must be a whole number from 64/u],
    [[{ memory: 1 }], /shapes\[0\].*memory/u],
    [nine, /^shapes: must have at most 8 entries/u],
    [{ vcpus: 1 }, /^shapes: must be an array of objects/u],
  ] as const) {
    const { status, body } = await harness.call('POST', BUILD, { body: { image: 'node:22-slim', shapes } });
    assert.deepEqual([status, body.error.code], [400, 'invalid_request']);
    assert.match(body.error.message, message);
  }
});

test('an organization sees images that it built or created from, under its own names, and built-in images', async () => {
  const [mine, theirs] = [await harness.addOrganization(), await harness.addOrganization()];
  harness.runner.images = [APP, BASE, NODE];
  assert.deepEqual(await listNames(mine), [BASE.image]);
  harness.runner.progress = finish(NODE);
  await build('node:22-slim', { apiKey: mine });
  assert.deepEqual(await listNames(mine), [BASE.image, NODE.image]);
  assert.deepEqual(await listNames(theirs), [BASE.image]);

  // The other organization has the same content under another name: each sees only its own name.
  const alias = { ...NODE, image: `registry.test/secret/name:1@${NODE.digest}` };
  harness.runner.progress = finish(alias);
  await build('registry.test/secret/name:1', { apiKey: theirs });
  harness.runner.images = [alias, BASE, NODE];
  assert.deepEqual(await listNames(mine), [BASE.image, NODE.image]);
  assert.deepEqual(await listNames(theirs), [BASE.image, alias.image]);

  harness.runner.images = [BASE];
  assert.deepEqual(await listNames(mine), [BASE.image]);
});

test('a create adds its image to the organization, a failed build does not', async () => {
  const apiKey = await harness.addOrganization();
  const answer = await harness.call('POST', '/v1/runs', { apiKey, body: { image: 'app:1' } });
  const created = describeImage('registry.test/library/app:1', 'a');
  assert.equal(answer.body.image, created.image);
  harness.runner.images = [APP, created];
  harness.runner.progress = [{ type: 'error', error: { code: 'image_not_found', message: 'no such' } }];
  await build('registry.test/team/app:1', { apiKey });
  assert.deepEqual(await listNames(apiKey), [created.image]);
});

test('only the 1000 images that were used last are stored', async () => {
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
  harness.runner.progress = finish(NODE);
  await build('node:22-slim', { apiKey });
  const names = await listNames(apiKey);
  assert.equal(names.length, 1000);
  assert.ok(names.includes(NODE.image) && names.some((name) => name.includes('old:1199@')));
  assert.ok(!names.some((name) => name.includes('old:200@')));
});
