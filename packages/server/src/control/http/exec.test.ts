import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import type { FakeCommand } from '../testing/fakes/fake-runner.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';

const CAP = 1 << 20;
let harness: ControlHarness;
let id = '';
before(async () => {
  harness = await startHarness({ execOutputBytes: CAP, openRequestsPerOrganization: 4 });
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(async () => {
  ({ id } = await harness.create());
});

const exec = (body: Record<string, unknown>) => harness.call('POST', `/v1/runs/${id}/exec`, { body });

test('a command gets its whole request, and its answer has the whole output', async () => {
  let seen: FakeCommand | undefined;
  harness.runner.onExec = (command) => {
    seen = command;
    command.stdout('out é');
    command.stderr('err');
    command.exit(3);
  };
  const body = { command: 'cat', timeout: 7, cwd: '/tmp', env: { A: 'b' }, user: 'node', stdin: 'in é' };
  const answer = await exec(body);
  assert.equal(answer.status, 200);
  assert.deepEqual(answer.body, {
    exit_code: 3,
    stdout: 'out é',
    stderr: 'err',
    timed_out: false,
    truncated: false,
  });
  const { stdin, ...head } = body;
  assert.deepEqual(seen?.head, {
    command: 'cat',
    cwd: '/tmp',
    env: { A: 'b' },
    user: 'node',
    timeout_ms: 7000,
    stdin: true,
  });
  assert.equal(seen.stdin, stdin);
  assert.equal(head.timeout, 7);
});

test('the status line is sent before the command has ended', async () => {
  let command: FakeCommand | undefined;
  harness.runner.onExec = (started) => (command = started);
  const response = await harness.fetch('POST', `/v1/runs/${id}/exec`, { body: { command: 'sleep 1000' } });
  assert.equal(response.status, 200);
  command?.exit(0);
  assert.equal(((await response.json()) as { exit_code: number }).exit_code, 0);
});

test('output over the limit is cut at a character and marked so, and the command is read to its end', async () => {
  harness.runner.onExec = (command) => {
    command.stderr('small');
    for (let sent = 0; sent < 4 * CAP; sent += 3 * 1000) command.stdout('€'.repeat(1000));
    command.exit(0);
  };
  const { body } = await exec({ command: 'yes' });
  assert.equal(body.truncated, true);
  assert.equal(body.exit_code, 0);
  assert.equal(body.stderr, 'small');
  assert.equal(Buffer.byteLength(body.stdout), CAP - (CAP % 3));
  assert.ok(!body.stdout.includes('\ufffd'));
});

test('bytes that are not UTF-8 become U+FFFD', async () => {
  harness.runner.onExec = (command) => {
    command.stdout(Buffer.from([0x61, 0xff, 0x62]));
    command.exit(0);
  };
  assert.equal((await exec({ command: 'x' })).body.stdout, 'a\ufffdb');
});

test('an elapsed timeout is a result: 124 and timed_out', async () => {
  harness.runner.onExec = (command) => {
    command.stdout('partial');
    command.exit(124, true);
  };
  assert.deepEqual((await exec({ command: 'x', timeout: 1 })).body, {
    exit_code: 124,
    stdout: 'partial',
    stderr: '',
    timed_out: true,
    truncated: false,
  });
});

test('a client that leaves does not stop the command', async () => {
  let command: FakeCommand | undefined;
  harness.runner.onExec = (started) => (command = started);
  const abort = new AbortController();
  const call = harness.fetch('POST', `/v1/runs/${id}/exec`, { body: { command: 'x' }, signal: abort.signal });
  await call;
  abort.abort();
  await waitFor('the log to say so', () =>
    harness.logLines.some((line) => line.includes('the connection ended before the answer')),
  );
  assert.equal(command?.stream.closed, false);
  assert.equal(command?.stream.aborted, false);
  command?.exit(0);
  await waitFor(
    'the idle timer to see its end',
    async () => (await harness.call('GET', `/v1/runs/${id}`)).body.expires_at !== null,
  );
});

test('requests of clients that have left stop counting as open', async () => {
  let command: FakeCommand | undefined;
  harness.runner.onExec = (started) => (command = started);
  const expires = async () => (await harness.call('GET', `/v1/runs/${id}`)).body.expires_at as string | null;
  for (let left = 0; left < 6; left += 1) {
    const abort = new AbortController();
    const body = { command: 'x' };
    const call = harness.fetch('POST', `/v1/runs/${id}/exec`, { body, signal: abort.signal });
    assert.equal((await call).status, 200);
    const isLogged = () =>
      harness.logLines.filter((line) => line.includes('the connection ended before')).length;
    const before = isLogged();
    abort.abort();
    await waitFor('the log to say so', () => isLogged() > before);
    command?.exit(0);
    await waitFor('the end of its use', async () => (await expires()) !== null);
  }
  harness.runner.onExec = (started) => started.exit(0);
  assert.equal((await exec({ command: 'x' })).status, 200);
});

test('a sandbox that is lost during the command breaks off the answer after an error object', async () => {
  harness.runner.onExec = (command) => {
    command.stdout('begun');
    command.stream.close(2);
  };
  const response = await harness.fetch('POST', `/v1/runs/${id}/exec`, { body: { command: 'x' } });
  let text = '';
  await assert.rejects(async () => {
    for await (const chunk of response.body ?? []) text += Buffer.from(chunk as Uint8Array).toString();
  });
  assert.match(text, /"code":"guest_unreachable"/);
});

test('frames that the protocol does not allow end the command, not the service', async () => {
  harness.runner.onExec = (command) => command.stream.end(Buffer.from([16, 0xff, 0xff, 0xff, 0xff, 0]));
  const response = await harness.fetch('POST', `/v1/runs/${id}/exec`, { body: { command: 'x' } });
  await assert.rejects(response.text());
  assert.equal((await harness.call('GET', '/healthz')).status, 200);
});

test('an exec in a sandbox that has ended is 409 with its state', async () => {
  await harness.call('DELETE', `/v1/runs/${id}`);
  const answer = await exec({ command: 'x' });
  assert.equal(answer.status, 409);
  assert.equal(answer.body.error.code, 'invalid_state');
  assert.match(answer.body.error.message, /destroyed/);
});

test('an exec whose VM is gone without an event is 409, and the record becomes failed', async () => {
  harness.runner.vms.delete(id);
  const answer = await exec({ command: 'x' });
  assert.equal(answer.status, 409);
  const record = (await harness.call('GET', `/v1/runs/${id}`)).body;
  assert.equal(record.status, 'failed');
  assert.equal(record.status_reason, 'vm_lost');
});

test('too many open requests of an organization are 429 with Retry-After', async () => {
  const commands: FakeCommand[] = [];
  harness.runner.onExec = (command) => commands.push(command);
  const body = { command: 'x' };
  const open = await Promise.all(
    [1, 2, 3, 4].map(() => harness.fetch('POST', `/v1/runs/${id}/exec`, { body })),
  );
  const refused = await exec(body);
  assert.equal(refused.status, 429);
  assert.equal(refused.body.error.code, 'rate_limited');
  assert.equal(refused.headers.get('retry-after'), '1');
  for (const command of commands) command.exit(0);
  await Promise.all(open.map((response) => response.text()));
});
