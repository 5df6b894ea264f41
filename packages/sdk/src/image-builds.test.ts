import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ImageBuildEvent } from './image-build-record.ts';
import { BUILD_ID as ID, WIRE_BUILD as WIRE } from './testing/build-record.ts';
import { errorBody, LoopbackServer, sendJson } from './testing/loopback-server.ts';

const SHOWN = {
  id: ID,
  status: 'done',
  name: 'built/app:1',
  from: 'node:22-slim',
  image: 'built/app:1@sha256:0',
  sizeBytes: 5,
  sandboxId: 'run0123456789abcdef0123',
  steps: 2,
  stepsDone: 2,
  error: null,
  createdAt: '2026-01-01T00:00:00.000Z',
  endedAt: '2026-01-01T00:01:00.000Z',
};
const EVENTS = [
  { type: 'step', seq: 1, step: 0, text: 'RUN a', cached: true },
  { type: 'of a newer service', seq: 2 },
  { type: 'stderr', seq: 3, step: 1, data: 'out\n' },
  { type: 'note', seq: 4, text: 'making the image' },
  { type: 'end', seq: 5, build: WIRE },
];
const SHOWN_EVENTS = [EVENTS[0], EVENTS[2], EVENTS[3], { type: 'end', seq: 5, build: SHOWN }];

const frame = (event: object): string => `data: ${JSON.stringify(event)}\n\n`;

/** Starts a service that knows one build, and answers each request for its log with the next of these texts. */
function serviceWithLog(logs: readonly string[], build: object = WIRE): Promise<LoopbackServer> {
  const left = [...logs];
  return LoopbackServer.start(({ url }, response) => {
    if (!url.includes('/log')) return sendJson(response, { status: 200, body: build });
    response.writeHead(200, { 'content-type': 'text/event-stream' }).end(left.shift() ?? '');
  });
}

test('a build sends its steps and options in snake_case, once, and does not wait', async () => {
  await using server = await LoopbackServer.answering(201, WIRE);
  const { builds } = server.client();
  const steps = [
    { run: ['make', 'all'] },
    { copy: { fromPath: 'src', to: '/srv', owner: '1:2', mode: '755' } },
    { env: { A: 'b' } },
    { workdir: '/srv' },
    { user: 'app' },
  ];
  const options = { context: 'c', timeout: 60, networkProfile: 'npm', noCache: true, memMiB: 512 };
  assert.deepEqual(await builds.start({ from: 'node:22-slim', name: 'app:1', steps, ...options }), SHOWN);
  assert.equal(`${server.last.method} ${server.last.url}`, 'POST /v1/images/build');
  assert.match(server.last.headers['idempotency-key']?.toString() ?? '', /./u);
  assert.deepEqual(server.lastJson, {
    from: 'node:22-slim',
    name: 'app:1',
    context: 'c',
    timeout: 60,
    network_profile: 'npm',
    no_cache: true,
    mem_mib: 512,
    detached: true,
    steps: [
      steps[0],
      { copy: { from_path: 'src', to: '/srv', owner: '1:2', mode: '755' } },
      steps[2],
      steps[3],
      steps[4],
    ],
  });
  await builds.start({ dockerfile: 'FROM a:1', name: 'app:1', buildArgs: { A: 'b' } });
  assert.deepEqual(server.lastJson, {
    dockerfile: 'FROM a:1',
    name: 'app:1',
    build_args: { A: 'b' },
    detached: true,
  });
});

test('a typo in an option or a step is refused', async () => {
  await using server = await LoopbackServer.answering(201, WIRE);
  const { builds } = server.client();
  const request = { from: 'a:1', name: 'app:1', steps: [] };
  await assert.rejects(builds.start({ ...request, noCahce: true } as typeof request), {
    name: 'TypeError',
    message: /unknown option "noCahce"/u,
  });
  const copy = { fromPath: 'a', to: '/b', chown: '1' };
  await assert.rejects(builds.start({ ...request, steps: [{ copy }] }), {
    name: 'TypeError',
    message: /unknown option "chown"/u,
  });
  assert.equal(server.seen.length, 0);
});

test('run reports the log, leaves out events of a newer service, and returns the build', async () => {
  await using server = await serviceWithLog([EVENTS.map(frame).join('')]);
  const told: ImageBuildEvent[] = [];
  const request = { from: 'a:1', name: 'app:1', steps: [] };
  const built = await server.client().builds.run(request, { onEvent: (event) => told.push(event) });
  assert.deepEqual(built, SHOWN);
  assert.deepEqual(told, SHOWN_EVENTS);
});

test('a build that fails or is cancelled is an error with the reason', async () => {
  const error = { code: 'build_failed', message: 'steps[1]: false ended with exit code 1' };
  const failed = { ...WIRE, status: 'failed', image: null, error };
  const request = { from: 'a:1', name: 'app:1', steps: [] };
  for (const [build, detail] of [
    [failed, error.message],
    [{ ...failed, status: 'cancelled', error: null }, 'the build is cancelled'],
  ] as const) {
    await using server = await serviceWithLog([frame({ type: 'end', seq: 1, build })], build);
    await assert.rejects(server.client().builds.run(request), { code: 'build_failed', detail });
  }
});

test('a build that failed is found, and its error is a field of it', async () => {
  const error = { code: 'build_failed', message: 'steps[1]: false ended with exit code 1' };
  await using server = await LoopbackServer.answering(200, { ...WIRE, status: 'failed', image: null, error });
  const { builds } = server.client();
  assert.deepEqual((await builds.get(ID)).error, error);
  assert.deepEqual((await builds.cancel(ID)).error, error);
});

test('builds are found, listed and cancelled, and contexts are uploaded and removed', async () => {
  await using server = await LoopbackServer.start((request, response) => {
    const body = request.url === '/v1/images/builds' ? [WIRE] : { ...WIRE, id: ID };
    sendJson(response, { status: 200, body });
  });
  const { builds } = server.client();
  assert.deepEqual(await builds.list(), [SHOWN]);
  assert.deepEqual(await builds.get(ID), SHOWN);
  assert.deepEqual(await builds.cancel(ID), SHOWN);
  assert.equal(await builds.uploadContext('archive'), ID);
  assert.deepEqual(
    server.seen.map(({ method, url }) => `${method} ${url}`),
    [
      'GET /v1/images/builds',
      `GET /v1/images/builds/${ID}`,
      `DELETE /v1/images/builds/${ID}`,
      'POST /v1/images/contexts',
    ],
  );
  assert.equal(server.last.body.toString(), 'archive');
  await builds.deleteContext('context0/1');
  assert.equal(`${server.last.method} ${server.last.url}`, 'DELETE /v1/images/contexts/context0%2F1');
});

test('a context is removed with and without a body in the answer, and one that is not there is an error', async () => {
  const answers = [204, 404];
  await using server = await LoopbackServer.start((_, response) => {
    const status = answers.shift() ?? 200;
    if (status === 404) sendJson(response, { status, body: errorBody('not_found', 'no such context') });
    else response.writeHead(status).end();
  });
  const { builds } = server.client();
  await builds.deleteContext('context0');
  await assert.rejects(builds.deleteContext('context0'), { code: 'not_found' });
});

test('a cancel waits longer than other calls, because the service destroys a sandbox meanwhile', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    setTimeout(() => sendJson(response, { body: WIRE }), 150);
  });
  const { builds } = server.client({ timeoutMs: 50 });
  await assert.rejects(builds.get(ID), { code: 'timeout' });
  assert.deepEqual(await builds.cancel(ID), SHOWN);
});
