import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import type { ExecFrame } from '@coppice/contract';
import { FRAME } from '../../lib/protocol/frames.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import type { FakeCommand } from '../testing/fakes/fake-runner.ts';
import { SocketClient } from '../testing/requests/socket-client.ts';

let harness: ControlHarness;
let id = '';
before(async () => {
  harness = await startHarness({ openStreamsPerOrganization: 4 });
  harness.runner.startsAtHead = true;
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(async () => {
  ({ id } = await harness.create());
});

const stream = (body: Record<string, unknown>, query = '', signal?: AbortSignal) =>
  harness.fetch('POST', `/v1/runs/${id}/exec/stream${query}`, {
    body,
    ...(signal === undefined ? {} : { signal }),
  });

async function frames(response: Response): Promise<ExecFrame[]> {
  const lines = (await response.text()).split('\n').filter((line) => line.startsWith('data: '));
  return lines.map((line) => JSON.parse(line.slice('data: '.length)) as ExecFrame);
}

/** The next command that is started. */
function nextCommand(): Promise<FakeCommand> {
  const started = Promise.withResolvers<FakeCommand>();
  harness.runner.onExec = started.resolve;
  return started.promise;
}

class Peer extends SocketClient<ExecFrame> {
  constructor(query = '', options: { key?: string | null } = {}) {
    super(harness, `/v1/runs/${id}/exec/ws${query}`, options);
  }
}

test('output is streamed as events, each at once, and the exit is the last', async () => {
  const started = nextCommand();
  const answered = stream({ command: 'x', stdin: 'in' });
  const command = await started;
  const response = await answered;
  assert.match(response.headers.get('content-type') ?? '', /^text\/event-stream/);
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  command.stdout('one');
  assert.equal((await reader?.read())?.value, 'data: {"type":"stdout","data":"one"}\n\n');
  command.stderr('two');
  assert.equal((await reader?.read())?.value, 'data: {"type":"stderr","data":"two"}\n\n');
  command.exit(7);
  assert.equal((await reader?.read())?.value, 'data: {"type":"exit","data":"7","timed_out":false}\n\n');
  assert.equal((await reader?.read())?.done, true);
});

test('a split character arrives as one, and invalid UTF-8 is sent before the exit', async () => {
  harness.runner.onExec = (command) => {
    for (const byte of Buffer.from('é€')) command.stdout(Buffer.from([byte]));
    command.stdout(Buffer.from([0xf0, 0x9f]));
    command.exit(0);
  };
  const received = await frames(await stream({ command: 'x' }));
  const text = received.map((frame) => (frame.type === 'stdout' ? frame.data : '')).join('');
  assert.equal(text, 'é€\ufffd');
  assert.equal(received.at(-1)?.type, 'exit');
});

test('base64 gives the exact bytes', async () => {
  harness.runner.onExec = (command) => {
    command.stdout(Buffer.from([0xff, 0x00, 0xc3]));
    command.exit(0);
  };
  const [first] = await frames(await stream({ command: 'x' }, '?encoding=base64'));
  assert.deepEqual(first, { type: 'stdout', data: '/wDD' });
  assert.equal((await stream({ command: 'x' }, '?encoding=latin1')).status, 400);
});

test('a client that leaves ends the command', async () => {
  const started = nextCommand();
  const abort = new AbortController();
  const answered = stream({ command: 'sleep 1000' }, '', abort.signal);
  const command = await started;
  await answered;
  abort.abort();
  await waitFor('the end of the command', () => command.stream.closed);
  assert.notEqual(command.stream.rstCode, 0);
});

test('a client that does not read makes the command wait, and the service buffers little', async () => {
  const started = nextCommand();
  const response = await Promise.all([stream({ command: 'yes' }), started]).then(([answer]) => answer);
  const command = await started;
  const chunk = Buffer.alloc(64 << 10, 'y');
  let accepted = 0;
  const before = process.memoryUsage().rss;
  while (command.stream.writableLength < 4 << 20) {
    command.stdout(chunk);
    accepted += chunk.length;
    if (accepted % (1 << 20) === 0) await new Promise((resolve) => setTimeout(resolve, 20));
    assert.ok(accepted < 256 << 20, 'the service buffers unread output without limit');
  }
  assert.ok(process.memoryUsage().rss - before < 200 << 20);
  await response.body?.cancel();
  await waitFor('the end of the command', () => command.stream.closed);
});

test('a sandbox that is lost during the command is an error event with its code', async () => {
  harness.runner.onExec = (command) => {
    command.stdout('some');
    command.stream.close(2);
  };
  const received = await frames(await stream({ command: 'x' }));
  assert.equal(received.at(-1)?.type, 'error');
  assert.match(JSON.stringify(received.at(-1)), /guest_unreachable/);
});

test('a runner that is lost during the command is reported as such: the command keeps running', async () => {
  const started = nextCommand();
  const response = stream({ command: 'sleep 1000' });
  (await started).stdout('some');
  const answered = await response;
  await harness.runner.stop();
  const received = await frames(answered);
  await harness.runner.start();
  assert.match(JSON.stringify(received.at(-1)), /"unavailable".*continues/u);
  await waitFor('health', async () => (await harness.call('GET', '/healthz')).status === 200);
});

test('an invalid request is refused before a stream begins', async () => {
  assert.equal((await stream({ command: '' })).status, 400);
  assert.equal((await stream({ command: 'x', timeout: 0 })).status, 400);
  assert.equal(
    (await harness.fetch('POST', `/v1/runs/run${'0'.repeat(20)}/exec/stream`, { body: { command: 'x' } }))
      .status,
    404,
  );
});

test('over a WebSocket a command gets input, the end of input and signals, in order', async () => {
  const started = nextCommand();
  const peer = new Peer();
  await peer.send(
    { command: 'cat', timeout: 5 },
    { type: 'stdin', data: 'ü1' },
    { type: 'stdin', data: '2' },
  );
  await peer.send({ type: 'stdin_eof' }, { type: 'signal', signal: 'SIGTERM' });
  const command = await started;
  assert.equal(command.head.command, 'cat');
  await waitFor('all input', () => command.input.length === 4);
  assert.deepEqual(
    command.input.map((frame) => [frame.type, frame.payload.toString('utf8')]),
    [
      [FRAME.stdin, 'ü1'],
      [FRAME.stdin, '2'],
      [FRAME.stdinEnd, ''],
      [FRAME.signal, '{"signal":"TERM"}'],
    ],
  );
  command.stdout('out');
  command.exit(143);
  assert.deepEqual(await peer.closed, { code: 1000, reason: '' });
  assert.deepEqual(peer.received, [
    { type: 'stdout', data: 'out' },
    { type: 'exit', data: '143', timed_out: false },
  ]);
});

test('the URL may contain the command', async () => {
  harness.runner.onExec = (command) => command.exit(command.head.command === 'echo a&b' ? 0 : 1);
  const peer = new Peer(`?command=${encodeURIComponent('echo a&b')}`);
  assert.equal((await peer.closed).code, 1000);
  assert.deepEqual(peer.received, [{ type: 'exit', data: '0', timed_out: false }]);
});

for (const [what, messages] of [
  ['not JSON', ['{']],
  ['binary', [Buffer.from('{}')]],
  ['of an unknown type', [{ command: 'x' }, { type: 'resize' }]],
  ['an extra field', [{ command: 'x', shell: 'zsh' }]],
  ['input of a wrong type', [{ command: 'x' }, { type: 'stdin', data: 1 }]],
  ['a signal without a name', [{ command: 'x' }, { type: 'signal', signal: '9; rm' }]],
] as const) {
  test(`a bad message (${what}) gets an error frame and close 1008, and ends the command`, async () => {
    const commands: FakeCommand[] = [];
    harness.runner.onExec = (command) => commands.push(command);
    const peer = new Peer();
    await peer.send(...messages);
    const { code, reason } = await peer.closed;
    assert.equal(code, 1008);
    assert.notEqual(reason, '');
    const last = peer.received.at(-1);
    assert.ok(last?.type === 'error');
    assert.equal(last.error.code, 'invalid_request');
    await waitFor('the end of the command', () => commands.every((command) => command.stream.closed));
  });
}

test('a message over the limit closes the socket with 1009', async () => {
  const peer = new Peer();
  await peer.send({ command: 'x' }, 'x'.repeat((1 << 20) + 1));
  assert.equal((await peer.closed).code, 1009);
});

test('a WebSocket client that leaves ends the command', async () => {
  const started = nextCommand();
  const peer = new Peer();
  await peer.send({ command: 'sleep 1000' });
  const command = await started;
  peer.socket.terminate();
  await waitFor('the end of the command', () => command.stream.closed);
});

test('an upgrade without a key is 401, of an unknown sandbox 404, and a plain GET is 400', async () => {
  await assert.rejects(new Peer('', { key: null }).closed, /401/);
  await assert.rejects(new Peer('?encoding=x').closed, /400/);
  assert.equal((await harness.call('GET', `/v1/runs/${id}/exec/ws`)).status, 400);
  id = `run${'0'.repeat(20)}`;
  await assert.rejects(new Peer().closed, /404/);
});

test('sockets count as open requests until they close', async () => {
  const peers: Peer[] = [];
  harness.runner.onExec = () => undefined;
  for (let index = 0; index < 4; index += 1) {
    const started = nextCommand();
    const peer = new Peer();
    await peer.send({ command: 'sleep' });
    await started;
    peers.push(peer);
  }
  const refused = new Peer('?command=x');
  assert.equal((await refused.closed).code, 1013);
  for (const peer of peers) peer.socket.terminate();
  harness.runner.onExec = (command) => command.exit(0);
  await waitFor('room for one more', async () => (await new Peer('?command=x').closed).code === 1000);
});
