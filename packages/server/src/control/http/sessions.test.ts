/** Shells, terminals and tickets: how control connects a client's socket to the frames of the guest. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { FRAME } from '../../lib/protocol/frames.ts';
import { revokeApiKey } from '../auth/api-key-store.ts';
import { API_KEY, startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import type { FakeProcess } from '../testing/fakes/fake-runner.ts';
import { SocketClient } from '../testing/requests/socket-client.ts';

let harness: ControlHarness;
let id = '';
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(async () => {
  ({ id } = await harness.create());
});

const open = (what: string, options: { key?: string | null } = {}): SocketClient =>
  new SocketClient(harness, `/v1/runs/${id}/${what}`, options);

/** The next shell or terminal that is opened. */
function nextProcess(kind: 'onShell' | 'onTerminal'): Promise<FakeProcess> {
  const started = Promise.withResolvers<FakeProcess>();
  harness.runner[kind] = started.resolve;
  return started.promise;
}

const exit = (code: number): string => JSON.stringify({ exit_code: code, timed_out: false });

test('each command of a shell has its own output and exit, in the order in which they were sent', async () => {
  const started = nextProcess('onShell');
  const client = open('shell?cwd=/tmp&user=nobody');
  await client.send(
    { type: 'shell_run', id: 'a', command: 'echo 1' },
    { type: 'shell_run', id: 'b', command: 'é' },
  );
  const shell = await started;
  assert.deepEqual(shell.head, { cwd: '/tmp', user: 'nobody' });
  await waitFor('both commands', () => shell.input.length === 2);
  assert.deepEqual(
    shell.input.map(({ type, payload }) => [type, String(payload)]),
    [
      [FRAME.run, 'echo 1'],
      [FRAME.run, 'é'],
    ],
  );
  const euro = Buffer.from('€');
  shell.send(FRAME.stdout, euro.subarray(0, 1));
  shell.send(FRAME.stdout, euro.subarray(1));
  shell.send(FRAME.stderr, 'oh');
  shell.send(FRAME.done, '{"exit_code":0}');
  shell.send(FRAME.stdout, euro.subarray(0, 2));
  shell.send(FRAME.done, '{"exit_code":7}');
  shell.send(FRAME.stdout, 'late');
  shell.send(FRAME.exit, exit(7));
  assert.deepEqual(await client.closed, { code: 1000, reason: '' });
  assert.deepEqual(client.received, [
    { type: 'shell_out', id: 'a', data: '€' },
    { type: 'shell_err', id: 'a', data: 'oh' },
    { type: 'shell_exit', id: 'a', code: 0 },
    { type: 'shell_out', id: 'b', data: '\ufffd' },
    { type: 'shell_exit', id: 'b', code: 7 },
    { type: 'shell_out', id: 'b', data: 'late' },
    { type: 'shell_closed' },
  ]);
});

for (const [what, message] of [
  ['not JSON', '{'],
  ['binary', Buffer.from('{}')],
  ['of an unknown type', { type: 'shell_kill', id: 'a' }],
  ['without an id', { type: 'shell_run', id: '', command: 'x' }],
  ['a command with a NUL', { type: 'shell_run', id: 'a', command: 'a\0b' }],
  ['an empty command', { type: 'shell_run', id: 'a', command: '' }],
] as const) {
  test(`a bad message to a shell (${what}) gets an error frame and close 1008, and ends the shell`, async () => {
    const started = nextProcess('onShell');
    const client = open('shell');
    await client.send(message);
    const shell = await started;
    assert.equal((await client.closed).code, 1008);
    assert.match(JSON.stringify(client.received.at(-1)), /"type":"error".*invalid_request/u);
    await waitFor('the end of the shell', () => shell.stream.closed);
  });
}

test('control answers any message to a shell with frames, and keeps serving', async () => {
  const message = fc.oneof(
    fc.json(),
    fc.string(),
    fc.record({ type: fc.constantFrom('shell_run', 'stdin'), id: fc.anything(), command: fc.anything() }),
    fc.uint8Array().map((bytes) => Buffer.from(bytes)),
  );
  harness.runner.onShell = () => undefined;
  const isUsable = (sent: unknown): boolean =>
    typeof sent === 'object' && JSON.stringify(sent).includes('shell_run');
  await fc.assert(
    fc.asyncProperty(message, async (sent) => {
      if (isUsable(sent)) return;
      const client = open('shell');
      await client.send(sent);
      assert.equal((await client.closed).code, 1008);
    }),
    { numRuns: 40 },
  );
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).status, 200);
});

test('a guest that reports the end of a command that was not run is at fault', async () => {
  const started = nextProcess('onShell');
  const client = open('shell');
  (await started).send(FRAME.done, '{"exit_code":0}');
  assert.equal((await client.closed).code, 1011);
  assert.match(JSON.stringify(client.received), /guest_unreachable/u);
});

test('a client that leaves ends its shell and its terminal', async () => {
  for (const [what, kind] of [
    ['shell', 'onShell'],
    ['terminal', 'onTerminal'],
  ] as const) {
    const started = nextProcess(kind);
    const client = open(what);
    const process = await started;
    client.socket.terminate();
    await waitFor(`the end of the ${what}`, () => process.stream.closed);
  }
});

test('a terminal carries bytes both ways, its size and its exit', async () => {
  const started = nextProcess('onTerminal');
  const client = open('terminal?cols=120&rows=40&command=top');
  const terminal = await started;
  assert.deepEqual(terminal.head, { cols: 120, rows: 40, command: 'top' });
  await client.send(Buffer.from([0x1b, 0xff]), { type: 'resize', cols: 10, rows: 5 });
  await waitFor('the input', () => terminal.input.length === 2);
  assert.deepEqual(
    terminal.input.map(({ type, payload }) => [type, payload.toString('latin1')]),
    [
      [FRAME.stdin, '\u001b\u00ff'],
      [FRAME.resize, '{"cols":10,"rows":5}'],
    ],
  );
  terminal.send(FRAME.stdout, Buffer.from([0xe2, 0x82]));
  terminal.send(FRAME.stdout, Buffer.from([0xac]));
  terminal.send(FRAME.exit, exit(3));
  assert.equal((await client.closed).code, 1000);
  assert.equal(String(client.bytes), '€');
  assert.deepEqual(client.received, [{ type: 'exit', code: 3 }]);
});

test('a terminal of an impossible size, or a resize to one, is refused', async () => {
  await assert.rejects(open('terminal?cols=0').closed, /400/u);
  await assert.rejects(open('terminal?rows=1001').closed, /400/u);
  harness.runner.onTerminal = () => undefined;
  const client = open('terminal');
  await client.send({ type: 'resize', cols: 0, rows: 24 });
  assert.equal((await client.closed).code, 1008);
});

test('the terminal takes the key in its URL, the other sockets do not, and no log line has it', async () => {
  harness.runner.onTerminal = ({ send }) => send(FRAME.exit, exit(0));
  assert.equal((await open(`terminal?token=${API_KEY}`, { key: null }).closed).code, 1000);
  await assert.rejects(open('terminal?token=nonsense', { key: null }).closed, /401/u);
  await assert.rejects(open(`shell?token=${API_KEY}`, { key: null }).closed, /401|400/u);
  assert.ok(!harness.logLines.join('').includes(API_KEY));
});

async function getTicket(body: Record<string, unknown> = {}, apiKey: string = API_KEY): Promise<string> {
  const { status, body: answer } = await harness.call('POST', `/v1/runs/${id}/tickets`, { body, apiKey });
  assert.equal(status, 201, JSON.stringify(answer));
  return (answer as { ticket: string }).ticket;
}

test('a ticket opens one socket of its sandbox, once', async () => {
  harness.runner.onTerminal = ({ send }) => send(FRAME.exit, exit(0));
  const ticket = await getTicket();
  assert.equal((await open(`terminal?ticket=${ticket}`, { key: null }).closed).code, 1000);
  await assert.rejects(open(`terminal?ticket=${ticket}`, { key: null }).closed, /401/u);
  const other = await getTicket();
  ({ id } = await harness.create());
  await assert.rejects(open(`shell?ticket=${other}`, { key: null }).closed, /401/u);
  assert.ok(!harness.logLines.join('').includes(ticket));
});

test('a ticket allows no more than the key that created it', async () => {
  const foreign = await harness.addOrganization();
  const created = await harness.call('POST', '/v1/runs', {
    body: { image: 'node:22-slim' },
    apiKey: foreign,
  });
  ({ id } = created.body as { id: string });
  const ticket = await getTicket({ expires_in: 300 }, foreign);
  await using db = harness.openDatabase();
  await revokeApiKey(db, foreign);
  await assert.rejects(open(`shell?ticket=${ticket}`, { key: null }).closed, /401/u);
  assert.equal((await harness.call('POST', `/v1/runs/${id}/tickets`)).status, 404);
});

test('a ticket is for sockets, not for requests, and is valid for at most five minutes', async () => {
  const ticket = await getTicket();
  assert.equal((await harness.call('GET', `/v1/runs/${id}?ticket=${ticket}`, { apiKey: null })).status, 401);
  assert.equal(
    (await harness.call('POST', `/v1/runs/${id}/tickets`, { body: { expires_in: 301 } })).status,
    400,
  );
});

test('a quiet socket stays open, a request with a late body does not', async () => {
  await using impatient = await startHarness({ bodyDeadlineMs: 200 });
  const { id: sandboxId } = await impatient.create();
  const started = Promise.withResolvers<FakeProcess>();
  impatient.runner.onShell = started.resolve;
  const client = new SocketClient(impatient, `/v1/runs/${sandboxId}/shell`);
  const shell = await started.promise;
  // Without a first byte `fetch` would not even send the head.
  const never = new ReadableStream({ start: (body) => body.enqueue(Buffer.from('{')) });
  const headers = { 'content-type': 'application/json' };
  await assert.rejects(impatient.call('POST', '/v1/runs', { raw: never, headers }));
  shell.send(FRAME.stdout, 'still here');
  await waitFor('the output', () => client.received.length === 1);
  client.socket.terminate();
});

test('a request without a body may take longer than the body deadline', async () => {
  await using impatient = await startHarness({ bodyDeadlineMs: 200 });
  const { id: sandboxId } = await impatient.create();
  impatient.runner.onDelete = () => sleep(600);
  assert.equal((await impatient.call('DELETE', `/v1/runs/${sandboxId}`)).status, 200);
});

test('a service that shuts down closes sockets with 1012 and an error frame', async () => {
  const started = nextProcess('onShell');
  const client = open('shell');
  const shell = await started;
  await harness.stopControl();
  assert.equal((await client.closed).code, 1012);
  assert.match(JSON.stringify(client.received.at(-1)), /"unavailable"/u);
  await waitFor('the end of the shell', () => shell.stream.closed);
});
