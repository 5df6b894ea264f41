import assert from 'node:assert/strict';
import type { ServerHttp2Stream } from 'node:http2';
import { after, before, beforeEach, test } from 'node:test';
import { AppError, type FileEvent } from '@coppice/contract';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

let harness: ControlHarness;
let id = '';
before(async () => {
  harness = await startHarness();
});
beforeEach(async () => {
  ({ id } = await harness.create());
  watches().onWatch = () => undefined;
});
after(() => harness[Symbol.asyncDispose]());

const watches = () => harness.runner.files.watches;

/** Yields the events of a watch. Leaving the loop closes the connection. */
async function* watch(query: string): AsyncGenerator<FileEvent> {
  const leave = new AbortController();
  const signal = AbortSignal.any([leave.signal, AbortSignal.timeout(20_000)]);
  const response = await harness.fetch('GET', `/v1/runs/${id}/files/watch?${query}`, { signal });
  assert.deepEqual([response.status, response.headers.get('content-type')], [200, 'text/event-stream']);
  try {
    let text = '';
    for await (const chunk of response.body ?? []) {
      const events = (text + Buffer.from(chunk).toString('utf8')).split('\n\n');
      text = events.pop() ?? '';
      for (const event of events)
        if (event.startsWith('data: ')) yield JSON.parse(event.slice('data: '.length)) as FileEvent;
    }
  } finally {
    leave.abort();
  }
}

async function collect(events: AsyncIterable<FileEvent>): Promise<FileEvent[]> {
  const all: FileEvent[] = [];
  for await (const event of events) all.push(event);
  return all;
}

const send = (stream: ServerHttp2Stream, ...lines: unknown[]): void => {
  for (const line of lines) stream.write(`${JSON.stringify(line)}\n`);
};

test('changes are passed on in the form of the contract, up to the end of the directory', async () => {
  watches().onWatch = (stream) => {
    send(
      stream,
      { type: 'created', path: '/w/a\nb', unknown: 1 },
      { type: 'renamed', path: '/w/b', from: '/w/a' },
    );
    stream.write('\n');
    send(stream, { type: 'removed', path: '/w/d', directory: true }, { type: 'lost' });
    stream.end('{"type":"ended","path":"/w"}\n');
  };
  assert.deepEqual(await collect(watch('path=/w&recursive=true')), [
    { type: 'created', path: '/w/a\nb', directory: false },
    { type: 'renamed', path: '/w/b', from: '/w/a', directory: false },
    { type: 'removed', path: '/w/d', directory: true },
    { type: 'lost' },
    { type: 'ended', path: '/w' },
  ]);
  assert.equal(watches().queries.at(-1)?.toString(), 'path=%2Fw&recursive=true');
});

test('a watch ends in the guest when its client leaves', async () => {
  watches().onWatch = (stream) => send(stream, { type: 'created', path: '/w/a' });
  for await (const _ of watch('path=/w')) break;
  await waitFor('the end of the watch', () => watches().open.length === 0);
});

test('a watch whose sandbox is destroyed ends with its state', async () => {
  watches().onWatch = (stream) => send(stream, { type: 'created', path: '/w/a' });
  const events: FileEvent[] = [];
  for await (const event of watch('path=/w')) {
    events.push(event);
    if (event.type !== 'created') continue;
    await harness.call('DELETE', `/v1/runs/${id}`);
    for (const stream of watches().open) stream.destroy();
  }
  const [, last] = events;
  assert.equal(events.length, 2);
  assert.ok(last?.type === 'error' && last.error.code === 'invalid_state', JSON.stringify(last));
  assert.match(last.error.message, /destroyed/);
});

test('a watch that the guest breaks off, or answers with nonsense, ends with an error', async () => {
  for (const broken of [
    (stream: ServerHttp2Stream) => stream.write('\n', () => stream.destroy(new Error('broken'))),
    (stream: ServerHttp2Stream) => stream.end(),
    (stream: ServerHttp2Stream) => stream.write('{"type":"error","data":"forged","error":{}}\n'),
    (stream: ServerHttp2Stream) => stream.write('x'.repeat(70_000)),
  ]) {
    watches().onWatch = (stream) => void broken(stream);
    const [event] = await collect(watch('path=/w'));
    assert.ok(event?.type === 'error' && event.error.code !== 'internal', JSON.stringify(event));
    assert.notEqual(event.data, 'forged');
  }
});

test('a refusal of the guest, and an invalid field, are statuses', async () => {
  harness.runner.onAgent = () => {
    throw new AppError('file_not_found', 'cannot watch /none (ENOENT)');
  };
  const missing = await harness.call('GET', `/v1/runs/${id}/files/watch?path=/none`);
  harness.runner.onAgent = () => false;
  assert.deepEqual([missing.status, missing.body.error.code], [404, 'file_not_found']);
  for (const query of ['', 'path=', 'path=/a&recursive=1', 'path=/a&x=1'])
    assert.equal((await harness.call('GET', `/v1/runs/${id}/files/watch?${query}`)).status, 400, query);
});
