/** Commands that outlive their clients, through the real API, with guests that the test controls. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, beforeEach, test } from 'node:test';
import { AppError, CreateCommandRequest } from '@coppice/contract';
import { FRAME } from '../../lib/protocol/frames.ts';
import type { FakeGuestCommand } from '../testing/fakes/fake-commands.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

let harness: ControlHarness;
let id = '';
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(async () => {
  harness.runner.commands.onStart = () => undefined;
  ({ id } = await harness.create());
});

const path = (command = '', rest = ''): string =>
  `/v1/runs/${id}/commands${command === '' ? '' : `/${command}`}${rest}`;

async function start(body: Record<string, unknown>): Promise<{ id: string; guest: FakeGuestCommand }> {
  const answer = await harness.call('POST', path(), { body });
  assert.equal(answer.status, 201, JSON.stringify(answer.body));
  return { id: answer.body.id, guest: harness.runner.commands.find(id, answer.body.id) };
}

async function events(): Promise<string[]> {
  const response = await harness.fetch('GET', `/v1/runs/${id}/audit`);
  return (await response.text())
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { event: string; data: Record<string, unknown> })
    .map(({ event, data }) => `${event} ${String(data['exit_code'])}`);
}

test('a command is started with what was asked for, and runs without its client', async () => {
  const { id: command, guest } = await start({
    command: 'make',
    cwd: '/src',
    env: { A: 'b' },
    user: 'node',
    timeout: 7,
    tag: 'build',
    stdin: 'text',
  });
  const { output_bytes: _, ...head } = guest.head;
  assert.deepEqual(head, {
    id: command,
    command: 'make',
    cwd: '/src',
    env: { A: 'b' },
    user: 'node',
    timeout_ms: 7000,
    stdin: 'text',
    keep_stdin: false,
  });
  const { body } = await harness.call('GET', path(command));
  assert.deepEqual(
    [body.state, body.tag, body.run_id, body.exit_code, body.ended_at],
    ['running', 'build', id, null, null],
  );
});

test('its end is recorded, and in the audit log, though nobody waits for it', async () => {
  const { id: command, guest } = await start({ command: 'x' });
  harness.runner.commands.print(guest, 'abc');
  harness.runner.commands.end(id, guest, 3);
  await waitFor('the end', async () => (await harness.call('GET', path(command))).body.state === 'exited');
  const { body } = await harness.call('GET', path(command));
  assert.deepEqual([body.exit_code, body.timed_out, body.output_bytes], [3, false, 3]);
  assert.deepEqual((await events()).slice(-2), ['exec.start undefined', 'exec.exit 3']);
});

test('a caller can wait for the end, and gets the record as it is when its time is up', async () => {
  const { id: command, guest } = await start({ command: 'x' });
  const early = await harness.call('GET', path(command, '/wait?timeout=0'));
  assert.equal(early.body.state, 'running');
  const waiting = harness.call('GET', path(command, '/wait'));
  harness.runner.commands.end(id, guest, 0);
  assert.equal((await waiting).body.state, 'exited');
});

test('with detached false the answer comes at the end', async () => {
  const call = harness.call('POST', path(), { body: { command: 'x', detached: false } });
  await waitFor('the start', () => harness.runner.commands.list(id).length > 0);
  const [guest] = harness.runner.commands.list(id);
  assert.ok(guest);
  harness.runner.commands.end(id, guest, 5, true);
  const { status, body } = await call;
  assert.deepEqual([status, body.state, body.exit_code, body.timed_out], [201, 'exited', 5, true]);
});

test('pages of output begin at any offset, and never cut a character', async () => {
  const { id: command, guest } = await start({ command: 'x' });
  harness.runner.commands.print(guest, 'a€');
  harness.runner.commands.print(guest, 'err', FRAME.stderr);
  const first = (await harness.call('GET', path(command, '/output?limit=2'))).body;
  assert.deepEqual(first, {
    output: [{ type: 'stdout', data: 'a', offset: 0 }],
    dropped_bytes: 0,
    next_offset: 1,
    is_last: false,
  });
  const rest = (await harness.call('GET', path(command, '/output?offset=1'))).body;
  assert.deepEqual(rest.output, [
    { type: 'stdout', data: '€', offset: 1 },
    { type: 'stderr', data: 'err', offset: 4 },
  ]);
  const errors = (await harness.call('GET', path(command, '/output?stream=stderr&encoding=base64'))).body;
  assert.deepEqual(errors.output, [
    { type: 'stderr', data: Buffer.from('err').toString('base64'), offset: 4 },
  ]);
  guest.dropped = 4;
  const late = (await harness.call('GET', path(command, '/output?offset=1'))).body;
  assert.deepEqual([late.dropped_bytes, late.output[0]?.offset, late.next_offset], [3, 4, 7]);
});

test('output as a stream continues from the id of an event, and ends with the exit', async () => {
  const { id: command, guest } = await start({ command: 'x' });
  harness.runner.commands.print(guest, 'one');
  const headers = { accept: 'text/event-stream', 'last-event-id': '1' };
  const response = await harness.fetch('GET', path(command, '/output'), { headers });
  harness.runner.commands.print(guest, 'two');
  harness.runner.commands.end(id, guest, 9);
  const lines = (await response.text()).split('\n').filter((line) => /^(?:id|data): /u.test(line));
  assert.deepEqual(lines, [
    'id: 3',
    'data: {"type":"stdout","data":"ne","offset":1}',
    'id: 6',
    'data: {"type":"stdout","data":"two","offset":3}',
    'data: {"type":"exit","data":"9","timed_out":false}',
  ]);
});

test('input and signals reach it', async () => {
  const { id: command, guest } = await start({ command: 'cat', stdin: true });
  assert.equal(guest.head['keep_stdin'], true);
  const headers = { 'content-type': 'application/octet-stream' };
  const answer = await harness.call('POST', path(command, '/stdin?end=true'), { raw: 'typed', headers });
  assert.deepEqual([answer.status, guest.stdin], [200, 'typed<end>']);
  const signalled = await harness.call('POST', path(command, '/signal'), { body: { signal: 'TERM' } });
  assert.deepEqual([signalled.status, guest.signals], [200, ['TERM']]);
});

test('a refused start is in the audit log, and leaves a command that is lost', async () => {
  harness.runner.commands.onStart = () => {
    throw new AppError('invalid_request', 'cwd: /x is not a directory');
  };
  const answer = await harness.call('POST', path(), { body: { command: 'x', cwd: '/x' } });
  assert.deepEqual([answer.status, answer.body.error.code], [400, 'invalid_request']);
  assert.deepEqual((await events()).slice(-2), ['exec.start undefined', 'exec.exit null']);
  const { body } = await harness.call('GET', path());
  assert.deepEqual(
    body.map((one: { state: string }) => one.state),
    ['lost'],
  );
});

test('lists are newest first, in pages, and filtered by state and tag', async () => {
  for (const tag of ['a', 'b', 'a']) await start({ command: tag, tag });
  const first = await harness.call('GET', path('', '?limit=2'));
  assert.equal(first.body.length, 2);
  const next = /<([^>]+)>/u.exec(first.headers.get('link') ?? '')?.[1] ?? '';
  assert.equal((await harness.call('GET', next)).body.length, 1);
  assert.equal((await harness.call('GET', path('', '?tag=a'))).body.length, 2);
  assert.equal((await harness.call('GET', path('', '?state=exited'))).body.length, 0);
});

test('the same Idempotency-Key starts one command', async () => {
  const call = () =>
    harness.call('POST', path(), { body: { command: 'x' }, headers: { 'idempotency-key': 'once' } });
  const [first, second] = [await call(), await call()];
  assert.equal(first.body.id, second.body.id);
  assert.equal(harness.runner.commands.list(id).length, 1);
});

test('the hash that an Idempotency-Key is kept with does not reveal the environment', async () => {
  await using db = harness.openDatabase();
  const hasPlainHash = async (body: object): Promise<boolean> => {
    const key = JSON.stringify(body);
    const call = () => harness.call('POST', path(), { body, headers: { 'idempotency-key': key } });
    const [first, second] = [await call(), await call()];
    assert.deepEqual([first.status, second.body.id], [201, first.body.id]);
    const { body_sha256 } = await db
      .selectFrom('idempotency_keys')
      .select('body_sha256')
      .where('key', '=', key)
      .executeTakeFirstOrThrow();
    const fields = Object.entries(CreateCommandRequest.parse(body)).toSorted(([a], [b]) => (a < b ? -1 : 1));
    const plain = createHash('sha256').update(JSON.stringify(Object.fromEntries(fields)));
    return body_sha256.equals(plain.digest());
  };
  assert.equal(await hasPlainHash({ command: 'x' }), true);
  assert.equal(await hasPlainHash({ command: 'x', env: { TOKEN: 'hunter2' } }), false);
});

test('ends are noticed after a restart of control, and after the runner was away', async () => {
  const [one, two] = [await start({ command: '1' }), await start({ command: '2' })];
  await harness.stopControl();
  harness.runner.commands.end(id, one.guest, 1);
  await harness.startControl();
  await waitFor(
    'the first end',
    async () => (await harness.call('GET', path(one.id))).body.state === 'exited',
  );
  harness.runner.commands.cutWatches(id);
  harness.runner.commands.end(id, two.guest, 2);
  await waitFor('the second end', async () => (await harness.call('GET', path(two.id))).body.exit_code === 2);
});

test('a fork has the commands of its parent under ids of their own', async () => {
  const { id: command, guest } = await start({ command: 'x', tag: 'job' });
  harness.runner.commands.print(guest, 'out');
  const { body } = await harness.call('POST', `/v1/runs/${id}/fork`, { body: {} });
  const child = body[0].id as string;
  const list = () => harness.call('GET', `/v1/runs/${child}/commands`);
  await waitFor('the command of the child', async () => (await list()).body.length === 1);
  const [copy] = (await list()).body;
  assert.deepEqual([copy.tag, copy.state, copy.run_id], ['job', 'running', child]);
  assert.notEqual(copy.id, command);
  const output = await harness.call('GET', `/v1/runs/${child}/commands/${copy.id}/output`);
  assert.equal(output.body.output[0].data, 'out');
  harness.runner.commands.end(child, harness.runner.commands.find(child, command), 4);
  await waitFor('its end', async () => (await list()).body[0].exit_code === 4);
  assert.equal((await harness.call('GET', path(command))).body.state, 'running');
});

test('a rollback brings back a command that had ended, and loses one that is newer', async () => {
  const { commands } = harness.runner;
  const old = await start({ command: 'old' });
  const { body: snapshot } = await harness.call('POST', `/v1/runs/${id}/snapshot`, { body: {} });
  commands.end(id, old.guest, 1);
  const { id: young } = await start({ command: 'young' });
  const stateOf = async (command: string) => (await harness.call('GET', path(command))).body.state;
  await waitFor('the end', async () => (await stateOf(old.id)) === 'exited');
  await harness.call('POST', `/v1/runs/${id}/rollback`, { body: { snapshot_id: snapshot.id } });
  await waitFor('the old one to run', async () => (await stateOf(old.id)) === 'running');
  await waitFor('the young one to be lost', async () => (await stateOf(young)) === 'lost');
  commands.end(id, commands.find(id, old.id), 2);
  await waitFor('its second end', async () => (await stateOf(old.id)) === 'exited');
  const { body } = await harness.call('POST', '/v1/runs/restore', { body: { snapshot_id: snapshot.id } });
  const list = () => harness.call('GET', `/v1/runs/${body.id}/commands`);
  await waitFor('the command of the copy', async () => (await list()).body.length === 1);
});

test('a command runs on after a hibernation, and its end is noticed', async () => {
  const { commands } = harness.runner;
  const { id: command } = await start({ command: 'x' });
  await harness.call('POST', `/v1/runs/${id}/hibernate`);
  assert.equal((await harness.call('GET', path(command))).body.state, 'running');
  await harness.call('POST', `/v1/runs/${id}/resume`);
  const waiting = harness.call('GET', path(command, '/wait'));
  commands.end(id, commands.find(id, command), 5);
  assert.equal((await waiting).body.exit_code, 5);
});

test('commands of a sandbox that has ended are lost, and still listed', async () => {
  const { id: command } = await start({ command: 'x' });
  const waiting = harness.call('GET', path(command, '/wait?timeout=60'));
  // A later request is answered when the wait has begun.
  await harness.call('GET', path(command));
  await harness.call('DELETE', `/v1/runs/${id}`);
  assert.equal((await waiting).body.state, 'lost');
  const { body } = await harness.call('GET', path(command));
  assert.equal(body.state, 'lost');
  assert.ok(body.ended_at !== null);
  assert.equal((await harness.call('GET', path(command, '/output'))).status, 409);
});

test('a wait that begins while the sandbox is destroyed ends with it', async () => {
  const { id: command } = await start({ command: 'x' });
  const gate = Promise.withResolvers<void>();
  harness.runner.onDelete = () => gate.promise;
  const destroying = harness.call('DELETE', `/v1/runs/${id}`);
  await waitFor(
    'the destroy',
    async () => (await harness.call('GET', `/v1/runs/${id}`)).body.operation === 'destroying',
  );
  const waiting = harness.call('GET', path(command, '/wait?timeout=60'));
  await harness.call('GET', path(command));
  gate.resolve();
  harness.runner.onDelete = () => undefined;
  assert.equal((await waiting).body.state, 'lost');
  assert.equal((await destroying).status, 200);
});

test('bad input names the field', async () => {
  for (const [body, field] of [
    [{}, 'command'],
    [{ command: '' }, 'command'],
    [{ command: 'x', timeout: -1 }, 'timeout'],
    [{ command: 'x', stdin: false }, 'stdin'],
    [{ command: 'x', tag: '' }, 'tag'],
    [{ command: 'x', detach: true }, 'detach'],
  ] as const) {
    const answer = await harness.call('POST', path(), { body });
    assert.equal(answer.status, 400);
    assert.match(answer.body.error.message, new RegExp(field, 'u'));
  }
  const { id: command } = await start({ command: 'x' });
  assert.equal((await harness.call('GET', path('cmd0'))).status, 404);
  assert.equal((await harness.call('GET', path(command, '/output?offset=-1'))).status, 400);
  assert.equal((await harness.call('POST', path(command, '/signal'), { body: { signal: 'x' } })).status, 400);
});
