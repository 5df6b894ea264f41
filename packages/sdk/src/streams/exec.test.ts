import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CoppiceError } from '../transport/errors.ts';
import { errorBody, LoopbackServer, SANDBOX_ID } from '../testing/loopback-server.ts';

const RESULT = { exit_code: 3, stdout: 'ä\u0000\n', stderr: 'no', timed_out: false, truncated: true };

test('exec sends the command with its options and does not change environment names', async () => {
  await using server = await LoopbackServer.answering(200, RESULT);
  const env = { someName: '1', OTHER_NAME: '2' };
  await server.sandbox().exec('cat', { timeout: 5, cwd: '/tmp', env, user: 'node', stdin: 'in' });
  assert.equal(`${server.last.method} ${server.last.url}`, `POST /v1/runs/${SANDBOX_ID}/exec`);
  assert.deepEqual(server.lastJson, {
    command: 'cat',
    timeout: 5,
    cwd: '/tmp',
    env,
    user: 'node',
    stdin: 'in',
  });
});

test('exec gives the command 30 seconds by default', async () => {
  await using server = await LoopbackServer.answering(200, RESULT);
  await server.sandbox().exec('true');
  assert.deepEqual(server.lastJson, { command: 'true', timeout: 30 });
});

test('an exit code other than zero is a result', async () => {
  await using server = await LoopbackServer.answering(200, RESULT);
  assert.deepEqual(await server.sandbox().exec('false'), {
    exitCode: 3,
    stdout: 'ä\u0000\n',
    stderr: 'no',
    timedOut: false,
    truncated: true,
  });
});

test('a command may take its timeout in addition to the client’s timeout', async () => {
  let finish = (): void => undefined;
  await using server = await LoopbackServer.start((_, response) => {
    response.flushHeaders();
    response.write(' ');
    const timer = setTimeout(() => response.end(JSON.stringify(RESULT)), 150);
    finish = () => clearTimeout(timer);
  });
  const result = await server.sandbox({ timeoutMs: 50 }).exec('slow', { timeout: 2 });
  finish();
  assert.equal(result.exitCode, 3);
});

test('an exec without an answer rejects after the timeout of the command plus that of the client', async () => {
  await using server = await LoopbackServer.start((_, response) => response.flushHeaders());
  const call = server.sandbox({ timeoutMs: 50 }).exec('hang', { timeout: 0.05 });
  await assert.rejects(call, { code: 'timeout', status: 0 });
});

test('a failure after the status line is an error with its code, whether the body ends or breaks off', async () => {
  const body = JSON.stringify(errorBody('guest_unreachable', 'the agent is gone'));
  for (const end of ['end', 'destroy'] as const) {
    await using server = await LoopbackServer.start((_, response) => {
      response.flushHeaders();
      response.write(' ');
      response.write(body, () => response[end]());
    });
    await assert.rejects(server.sandbox().exec('x'), (error) => {
      assert.ok(error instanceof CoppiceError);
      assert.equal(error.code, 'guest_unreachable', end);
      assert.equal(error.detail, 'the agent is gone');
      assert.equal(error.requestId, 'req0a1b');
      return true;
    });
  }
});

test('an exec can be aborted', async () => {
  await using server = await LoopbackServer.start((_, response) => response.flushHeaders());
  const controller = new AbortController();
  const call = server.sandbox().exec('sleep 60', { signal: controller.signal });
  controller.abort();
  await assert.rejects(call, { name: 'AbortError' });
});

test('a misspelt option is refused', async () => {
  await using server = await LoopbackServer.answering(200, RESULT);
  await assert.rejects(server.sandbox().exec('x', { timeoutMs: 5 } as object), /timeoutMs/);
});
