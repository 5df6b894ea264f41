import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BuildProgress } from './streams/build-events.ts';
import { errorBody, LoopbackServer } from './testing/loopback-server.ts';

const WIRE = {
  image: 'a:1@sha256:0',
  digest: 'sha256:0',
  size_bytes: 5,
  prepared_at: null,
  status: 'preparing',
  shapes: [{ vcpus: 1, mem_mib: 1024, disk_mib: 4096, max_disk_mib: 16_383 }],
};
const SHOWN = {
  image: 'a:1@sha256:0',
  digest: 'sha256:0',
  sizeBytes: 5,
  preparedAt: null,
  status: 'preparing',
  shapes: [{ vcpus: 1, memMiB: 1024, diskMiB: 4096, maxDiskMiB: 16_383 }],
};

test('images have fields in camelCase', async () => {
  await using server = await LoopbackServer.answering(200, [WIRE]);
  assert.deepEqual(await server.client().images.list(), [SHOWN]);
  assert.equal(server.last.url, '/v1/images');
});

test('build sends the image and returns its record', async () => {
  await using server = await LoopbackServer.answering(200, WIRE);
  assert.deepEqual(await server.client().images.build('a:1'), SHOWN);
  assert.equal(`${server.last.method} ${server.last.url}`, 'POST /v1/images/build');
  assert.deepEqual(server.lastJson, { image: 'a:1' });
});

test('shapes are sent in snake_case, and a typo in one is refused', async () => {
  await using server = await LoopbackServer.answering(200, WIRE);
  const { images } = server.client();
  await images.build('a:1', { shapes: [{ vcpus: 2, memMiB: 512 }, { diskMiB: 8192 }] });
  assert.deepEqual(server.lastJson, {
    image: 'a:1',
    shapes: [{ vcpus: 2, mem_mib: 512 }, { disk_mib: 8192 }],
  });
  await assert.rejects(images.build('a:1', { shapes: [{ memoryMiB: 1 } as object] }), {
    name: 'TypeError',
    message: /^build: shapes: unknown option "memoryMiB"/u,
  });
});

test('the record of a service that sends no shapes has no shapes', async () => {
  const { shapes: _, ...older } = WIRE;
  await using server = await LoopbackServer.answering(200, [older]);
  assert.deepEqual(await server.client().images.list(), [{ ...SHOWN, shapes: [] }]);
});

test('a refused image is an error with the service’s code', async () => {
  await using server = await LoopbackServer.answering(400, errorBody('image_not_pinned', 'a has no tag'));
  await assert.rejects(server.client().images.build('a'), {
    code: 'image_not_pinned',
    detail: 'a has no tag',
  });
});

/** Starts a service that answers with these pieces, each in its own chunk. */
function streaming(...pieces: string[]): Promise<LoopbackServer> {
  return LoopbackServer.start(async (_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const piece of pieces) {
      response.write(piece);
      await new Promise(setImmediate);
    }
    response.end();
  });
}

const STEP = 'data: {"type":"step","step":"pull","elapsed_ms":5}\n\n';
const PROGRESS = 'data: {"type":"progress","step":"pull","done_bytes":3,"total_bytes":9,"elapsed_ms":7}\n\n';
const DONE = `data: ${JSON.stringify({ type: 'done', image: WIRE })}\n\n`;

test('a build with onProgress reports steps and bytes and returns the record for any split of the stream', async () => {
  const all = `:\n\n${STEP}:\n\ndata: {"type":"of a newer service"}\n\n${PROGRESS}${DONE}`;
  for (const pieces of [[all], Array.from(all), [all.replaceAll('\n', '\r\n')]]) {
    await using server = await streaming(...pieces);
    const told: BuildProgress[] = [];
    const onProgress = (progress: BuildProgress): unknown => told.push(progress);
    assert.deepEqual(await server.client().images.build('a:1', { onProgress }), SHOWN);
    assert.deepEqual(told, [
      { step: 'pull', doneBytes: null, totalBytes: null, elapsedMs: 5 },
      { step: 'pull', doneBytes: 3, totalBytes: 9, elapsedMs: 7 },
    ]);
    assert.equal(server.last.headers.accept, 'text/event-stream');
    assert.deepEqual(server.lastJson, { image: 'a:1' });
  }
});

test('a failed build with onProgress is an error with the service’s code, before and after its start', async () => {
  const onProgress = (): void => undefined;
  const event = { type: 'error', ...errorBody('image_not_found', 'no such image') };
  await using server = await streaming(STEP, `data: ${JSON.stringify(event)}\n\n`);
  await assert.rejects(server.client().images.build('a:1', { onProgress }), {
    name: 'CoppiceError',
    code: 'image_not_found',
    detail: 'no such image',
    requestId: 'req0a1b',
  });
  await using refused = await LoopbackServer.answering(400, errorBody('image_not_pinned', 'a has no tag'));
  await assert.rejects(refused.client().images.build('a', { onProgress }), { code: 'image_not_pinned' });
});

test('a stream that ends early or is invalid is an error', async () => {
  const onProgress = (): void => undefined;
  for (const text of [STEP, DONE.trimEnd(), 'data: {"type":"done"}\n\n', 'data: nonsense\n\n', '']) {
    await using server = await streaming(text);
    await assert.rejects(
      server.client().images.build('a:1', { onProgress }),
      { code: 'invalid_response' },
      JSON.stringify(text),
    );
  }
});

test('a build with onProgress ends with the caller’s signal, or with the error of onProgress', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' }).write(STEP);
  });
  const reason = new Error('enough');
  const fail = (): never => {
    throw reason;
  };
  await assert.rejects(server.client().images.build('a:1', { onProgress: fail }), reason);
  const controller = new AbortController();
  const onProgress = (): void => controller.abort(reason);
  await assert.rejects(
    server.client().images.build('a:1', { onProgress, signal: controller.signal }),
    reason,
  );
});
