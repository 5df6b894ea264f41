import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServerResponse } from 'node:http';
import { errorBody, LoopbackServer, SANDBOX_ID, sendJson } from '../testing/loopback-server.ts';
import type { CommandOutput } from './command-output.ts';

const ID = 'cmd0123456789abcdef0123';
const PATH = `/v1/runs/${SANDBOX_ID}/commands`;
const RECORD = {
  id: ID,
  run_id: SANDBOX_ID,
  command: 'make',
  tag: 'build',
  state: 'running',
  exit_code: null,
  timed_out: false,
  started_at: '2026-11-21T06:30:00.000Z',
  ended_at: null,
  output_bytes: 0,
  dropped_bytes: 0,
};
const ENDED = { ...RECORD, state: 'exited', exit_code: 3, ended_at: '2026-11-21T06:31:00.000Z' };

interface Output {
  type: 'stdout' | 'stderr';
  offset: number;
  bytes: Buffer;
}

const event = (data: object): string => `data: ${JSON.stringify(data)}\n\n`;
const outputEvent = ({ type, offset, bytes }: Output): string =>
  event({ type, offset, data: bytes.toString('base64') });
const exitEvent = event({ type: 'exit', data: '3', timed_out: false });
const out = (offset: number, text: string | Buffer): string =>
  outputEvent({ type: 'stdout', offset, bytes: Buffer.from(text) });

/** Sends events, and then ends the answer or breaks it off. */
function sendEvents(response: ServerResponse, text: string, isWhole = true): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write(text, () => (isWhole ? response.end() : response.destroy()));
}

/** Reads to the end. */
async function readAll(output: AsyncGenerator<CommandOutput, unknown>) {
  const parts: CommandOutput[] = [];
  for (;;) {
    const { value, done } = await output.next();
    if (done === true) return { parts, exit: value };
    parts.push(value);
  }
}

async function command(server: LoopbackServer) {
  const found = await server.sandbox().commands.get(ID);
  assert.ok(found !== null);
  return found;
}

/** A server with one command, whose output `send` writes; it is called with the number of the request. */
const serving = (send: (response: ServerResponse, count: number, url: string) => void) => {
  let count = 0;
  return LoopbackServer.start(({ url }, response) => {
    if (url === `${PATH}/${ID}`) sendJson(response, { body: RECORD });
    else send(response, (count += 1), url);
  });
};

test('a command is started with its options, which are named if they are unknown', async () => {
  await using server = await LoopbackServer.answering(201, RECORD);
  const { commands } = server.sandbox();
  const started = await commands.start('make', {
    cwd: '/src',
    env: { A: 'b' },
    user: 'node',
    timeout: 60,
    stdin: true,
    tag: 'build',
    idempotencyKey: 'mine',
  });
  assert.deepEqual([started.id, started.state, started.record.tag], [ID, 'running', 'build']);
  assert.deepEqual(server.lastJson, {
    command: 'make',
    cwd: '/src',
    env: { A: 'b' },
    user: 'node',
    timeout: 60,
    stdin: true,
    tag: 'build',
  });
  assert.deepEqual([server.last.url, server.last.headers['idempotency-key']], [PATH, 'mine']);
  await assert.rejects(commands.start('make', { detached: true } as object), {
    name: 'TypeError',
    message: /detached/u,
  });
});

test('get returns null for a command that does not exist, and throws every other error', async () => {
  await using missing = await LoopbackServer.answering(404, errorBody('not_found', 'no such command'));
  assert.equal(await missing.sandbox().commands.get(ID), null);
  await using refusing = await LoopbackServer.answering(401, errorBody('unauthorized', 'revoked'));
  await assert.rejects(refusing.sandbox().commands.get(ID), { code: 'unauthorized' });
});

test('the list is filtered, and each of it can be used', async () => {
  await using server = await LoopbackServer.answering(200, [ENDED]);
  const [found] = await server.sandbox().commands.list({ state: 'exited', tag: 'build', limit: 1 });
  assert.equal(found?.record.exitCode, 3);
  assert.equal(server.last.url, `${PATH}?state=exited&tag=build&limit=1`);
  assert.throws(() => server.sandbox().commands.list({ limit: 0 }), TypeError);
});

test('input, signals and the record are requests of their own', async () => {
  await using server = await LoopbackServer.answering(200, RECORD);
  const running = await command(server);
  await running.write('yes\n', { end: true });
  assert.deepEqual([server.last.url, server.last.body.toString()], [`${PATH}/${ID}/stdin?end=true`, 'yes\n']);
  await running.signal('TERM');
  assert.deepEqual([server.last.url, server.lastJson], [`${PATH}/${ID}/signal`, { signal: 'TERM' }]);
  assert.equal((await running.info()).startedAt, RECORD.started_at);
});

test('wait asks until the command has ended', async () => {
  await using server = await serving((response, count) =>
    sendJson(response, { body: count < 3 ? RECORD : ENDED }),
  );
  const running = await command(server);
  const { exitCode, state } = await running.wait();
  assert.deepEqual([exitCode, state, running.state], [3, 'exited', 'exited']);
  assert.equal(server.seen.length, 4);
});

test('output is yielded with where it continues, and returned with the exit', async () => {
  await using server = await serving((response) => {
    const error = outputEvent({ type: 'stderr', offset: 4, bytes: Buffer.from('bad\n') });
    sendEvents(response, out(0, 'one\n') + error + exitEvent);
  });
  const { parts, exit } = await readAll((await command(server)).output());
  assert.deepEqual(parts, [
    { type: 'stdout', data: 'one\n', nextOffset: 4 },
    { type: 'stderr', data: 'bad\n', nextOffset: 8 },
  ]);
  assert.deepEqual(exit, { exitCode: 3, timedOut: false });
});

test('after a lost connection it continues in the middle of a character, and repeats nothing', async () => {
  const text = Buffer.from('aäb');
  await using server = await serving((response, count, url) => {
    if (count === 1) return sendEvents(response, out(0, text.subarray(0, 2)), false);
    assert.match(url, /offset=2/u);
    return sendEvents(response, out(2, text.subarray(2)) + exitEvent);
  });
  const { parts } = await readAll((await command(server)).output());
  assert.deepEqual(parts, [
    { type: 'stdout', data: 'a', nextOffset: 1 },
    { type: 'stdout', data: 'äb', nextOffset: 4 },
  ]);
});

test('it continues when the service restarts: the last event is an error then, or the request is refused', async () => {
  await using server = await serving((response, count) => {
    const error = event({ type: 'error', error: errorBody('unavailable', 'restarting').error });
    if (count === 1) return sendEvents(response, out(0, 'a') + error);
    if (count === 2) return sendJson(response, { status: 503, body: errorBody('unavailable', 'starting') });
    return sendEvents(response, out(1, 'b') + exitEvent);
  });
  const { parts } = await readAll((await command(server)).output());
  assert.deepEqual(
    parts.map((part) => part.type === 'stdout' && part.data),
    ['a', 'b'],
  );
});

test('a part that is kept no more is yielded as dropped', async () => {
  await using server = await serving((response) =>
    sendEvents(response, event({ type: 'dropped', offset: 0, next_offset: 9 }) + out(9, 'x') + exitEvent),
  );
  const { parts } = await readAll((await command(server)).output());
  assert.deepEqual(parts, [
    { type: 'dropped', bytes: 9, nextOffset: 9 },
    { type: 'stdout', data: 'x', nextOffset: 10 },
  ]);
});

test('a character that is cut at the end of the output is replaced, not swallowed', async () => {
  await using server = await serving((response) =>
    sendEvents(response, out(0, Buffer.from('ä').subarray(0, 1)) + exitEvent),
  );
  const { parts } = await readAll((await command(server)).output());
  assert.deepEqual(parts, [{ type: 'stdout', data: '\uFFFD', nextOffset: 1 }]);
});

test('an error that repeating does not cure ends the output, and so does the caller’s signal', async () => {
  await using server = await serving((response) =>
    sendJson(response, { status: 409, body: errorBody('invalid_state', 'hibernated') }),
  );
  const running = await command(server);
  await assert.rejects(readAll(running.output()), { code: 'invalid_state' });
  await using silent = await serving((response) => response.writeHead(200).write('\n'));
  const stuck = (await command(silent)).output({ signal: AbortSignal.timeout(50) });
  await assert.rejects(readAll(stuck), { name: 'TimeoutError' });
});
