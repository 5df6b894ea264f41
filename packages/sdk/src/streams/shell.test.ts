import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SANDBOX_ID } from '../testing/loopback-server.ts';
import { LoopbackSockets, type ServicePeer } from '../testing/loopback-sockets.ts';
import { within } from '../testing/within.ts';

const out = (id: string, data: string) => ({ type: 'shell_out', id, data });
const err = (id: string, data: string) => ({ type: 'shell_err', id, data });
const exit = (id: string, code: number) => ({ type: 'shell_exit', id, code });
const CLOSED = { type: 'shell_closed' };

interface RunMessage {
  type: string;
  id: string;
  command: string;
}

async function nextRun(peer: ServicePeer): Promise<RunMessage> {
  return (await peer.next()) as RunMessage;
}

test('a shell runs commands in order and returns to each its output', async () => {
  await using service = await LoopbackSockets.start(async (peer) => {
    const runs = [await nextRun(peer), await nextRun(peer), await nextRun(peer)];
    for (const { type, id, command } of runs)
      peer.send(out(id, type), err(id, command), out(id, 'ß'), exit(id, runs.length));
  });
  await using shell = await service.sandbox().shell({ cwd: '/a b', user: 'node' });
  const heard: string[] = [];
  const listeners = {
    onStdout: async (data: string) => {
      await Promise.resolve();
      heard.push(`out ${data}`);
    },
    onStderr: (data: string) => void heard.push(`err ${data}`),
  };
  const results = await Promise.all(['a', 'b', 'c'].map((command) => shell.run(command, listeners)));
  assert.deepEqual(
    results.map(({ stderr }) => stderr),
    ['a', 'b', 'c'],
  );
  assert.deepEqual(results[0], { exitCode: 3, stdout: 'shell_runß', stderr: 'a', truncated: false });
  assert.deepEqual(heard.slice(0, 4), ['out shell_run', 'err a', 'out ß', 'out shell_run']);
  const [upgrade = ''] = service.upgrades;
  const url = new URL(upgrade, 'http://x');
  assert.equal(url.pathname, `/v1/runs/${SANDBOX_ID}/shell`);
  assert.deepEqual([url.searchParams.get('cwd'), url.searchParams.get('user')], ['/a b', 'node']);
});

test('the run that ends a shell resolves, and all other runs reject', async () => {
  await using service = await LoopbackSockets.start(async (peer) => {
    const { id } = await nextRun(peer);
    await nextRun(peer);
    peer.end(exit(id, 3), CLOSED);
  });
  const shell = await service.sandbox().shell();
  const runs = await Promise.allSettled([shell.run('exit 3'), shell.run('true')]);
  assert.equal(runs[0].status === 'fulfilled' && runs[0].value.exitCode, 3);
  assert.equal(runs[1].status === 'rejected' && runs[1].reason.code, 'shell_closed');
  await within(5000, shell.closed, 'the shell is open');
  await assert.rejects(shell.run('true'), { code: 'shell_closed' });
  await shell.close();
});

test('a run that starts before the end of the shell is read rejects like later ones', async () => {
  let left: Promise<unknown> = Promise.resolve();
  await using service = await LoopbackSockets.start(async (peer) => {
    left = peer.left();
    const { id } = await nextRun(peer);
    peer.end(out(id, 'y'), exit(id, 0), CLOSED);
  });
  const shell = await service.sandbox().shell();
  let late: Promise<unknown> = Promise.resolve();
  const onStdout = async (): Promise<void> => {
    await left;
    late = assert.rejects(shell.run('late'), { code: 'shell_closed' });
  };
  assert.equal((await shell.run('exit', { onStdout })).exitCode, 0);
  await late;
});

test('closing a shell rejects its runs with shell_closed and resolves closed', async () => {
  await using service = await LoopbackSockets.start(() => undefined);
  const shell = await service.sandbox().shell();
  const running = shell.run('sleep 60');
  const rejected = assert.rejects(running, { code: 'shell_closed' });
  await shell.close();
  await rejected;
  await within(5000, shell.closed, 'the shell is open');
});

test('a lost connection, an error frame and an abort each reject both the runs and closed', async () => {
  const controller = new AbortController();
  const reason = new Error('no longer wanted');
  const error = { code: 'invalid_request', message: 'message: is not JSON', request_id: 'req1' };
  const ways: [string, (peer: ServicePeer) => void, object][] = [
    ['restart', (peer) => peer.socket.close(1012, 'restarting'), { code: 'unavailable' }],
    ['loss', (peer) => peer.socket.terminate(), { code: 'connection_failed' }],
    ['error', (peer) => peer.end({ type: 'error', data: error.message, error }), { code: error.code }],
    ['abort', () => controller.abort(reason), reason],
  ];
  for (const [, fail, expected] of ways) {
    await using service = await LoopbackSockets.start(async (peer) => {
      const { id } = await nextRun(peer);
      await nextRun(peer);
      peer.send(out(id, 'y'), exit(id, 0));
      await nextRun(peer);
      fail(peer);
    });
    const shell = await service.sandbox().shell({ signal: controller.signal });
    const [first, second] = [shell.run('a'), shell.run('b')];
    const rejected = assert.rejects(second, expected);
    assert.equal((await first).stdout, 'y');
    const third = assert.rejects(shell.run('c'), expected);
    await Promise.all([rejected, third]);
    await assert.rejects(shell.closed, expected);
    await assert.rejects(shell.run('later'), expected);
  }
});

test('a throwing listener fails only its own run, and the shell continues', async () => {
  await using service = await LoopbackSockets.start(async (peer) => {
    for (;;) {
      const { id } = await nextRun(peer);
      peer.send(out(id, 'one'), out(id, 'two'), exit(id, 0), out(id, 'of a background job'));
    }
  });
  await using shell = await service.sandbox().shell();
  const onStdout = (): void => {
    throw new Error('enough');
  };
  await assert.rejects(shell.run('a', { onStdout }), /enough/);
  const heard: string[] = [];
  const listeners = { onStdout: (data: string) => void heard.push(data) };
  assert.equal((await shell.run('b', listeners)).stdout, 'onetwo');
  await shell.run('c');
  assert.deepEqual(heard, ['one', 'two']);
});

test('the collected output has a limit, and listeners receive all of it', async () => {
  const text = 'x'.repeat(2 ** 20);
  await using service = await LoopbackSockets.start(async (peer) => {
    const { id } = await nextRun(peer);
    for (let count = 0; count < 17; count += 1) peer.send(out(id, text));
    peer.send(err(id, 'y'), exit(id, 0));
  });
  await using shell = await service.sandbox().shell();
  let heard = 0;
  const result = await shell.run('yes', { onStdout: (data) => void (heard += data.length) });
  assert.equal(result.stdout.length, 16 * 2 ** 20);
  assert.equal(heard, 17 * 2 ** 20);
  assert.deepEqual([result.stderr, result.truncated], ['y', true]);
});

test('a command that would close the whole shell is refused before it is sent', async () => {
  await using service = await LoopbackSockets.start(async (peer) => {
    const { id, command } = await nextRun(peer);
    peer.send(out(id, command), exit(id, 0));
  });
  await using shell = await service.sandbox().shell();
  for (const command of ['', 'a\0b', undefined as unknown as string])
    await assert.rejects(shell.run(command), TypeError);
  await assert.rejects(shell.run('x'.repeat(2 ** 20)), { name: 'TypeError', message: /upload a file/ });
  assert.equal((await shell.run('good')).stdout, 'good');
  await assert.rejects(service.sandbox().shell({ env: {} } as object), /"env"/);
});
