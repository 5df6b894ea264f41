import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errorBody, SANDBOX_ID, sendJson, wireRecord } from '../../../sdk/src/testing/loopback-server.ts';
import { LoopbackSockets, type ServicePeer } from '../../../sdk/src/testing/loopback-sockets.ts';
import { answerSandbox, CliUser, until } from '../testing/cli-process.ts';

/** More than a pipe holds. */
const MANY_BYTES = 240_000;
const DESTROYED = { status: 'destroyed', cpu_ms: 1, mem_peak_bytes: 1, uptime_ms: 1, cost_cents: 0 };

/** Sends much output and the end, whatever the input. */
async function printMuch(peer: ServicePeer): Promise<void> {
  await peer.next();
  peer.end({ type: 'stdout', data: 'x'.repeat(MANY_BYTES) }, { type: 'exit', data: '7', timed_out: false });
}

const answer = answerSandbox(({ method }, response) =>
  method === 'POST'
    ? sendJson(response, { status: 201, body: wireRecord() })
    : sendJson(response, { body: DESTROYED }),
);

test('a slow reader gets all output, and the exit code is that of the command, whatever is left of its input', async () => {
  await using service = await LoopbackSockets.start(printMuch, { answer });
  using user = new CliUser(service.url);
  for (const input of ['yes |', 'cat < /dev/null |']) {
    const line = `${input} coppice exec ${SANDBOX_ID} -- cmd | { sleep 1; wc -c; }; echo "codes \${PIPESTATUS[@]:1}"`;
    const { stdout, stderr } = await user.runBash(line);
    assert.equal(stdout, `${MANY_BYTES}\ncodes 7 0\n`, stderr);
  }
});

test('output that a pipe has no room for is not lost at the end', async () => {
  // The last piece is less than a stream takes before it asks to wait.
  const piece = { type: 'stdout', data: 'x'.repeat(60_000) };
  await using service = await LoopbackSockets.start(
    async (peer) => {
      await peer.next();
      peer.end(piece, piece, { type: 'exit', data: '0', timed_out: false });
    },
    { answer },
  );
  using user = new CliUser(service.url);
  const { stdout } = await user.runBash(`coppice exec -n ${SANDBOX_ID} -- cmd | { sleep 2; wc -c; }`);
  assert.equal(stdout, '120000\n');
});

test('input that is not text is refused although the command still runs', async () => {
  await using service = await LoopbackSockets.start(
    async (peer) => {
      await peer.left();
    },
    { answer },
  );
  using user = new CliUser(service.url);
  const { stdout, stderr } = await user.runBash(
    `printf '\\377' | coppice exec ${SANDBOX_ID} -- cat; echo code $?`,
  );
  assert.equal(stdout, 'code 125\n');
  assert.match(stderr, /not UTF-8/u);
});

test('options of the command in the guest are its own, without "--" too', async () => {
  const commands: unknown[] = [];
  await using service = await LoopbackSockets.start(
    async (peer) => {
      commands.push(await peer.next());
      peer.end({ type: 'exit', data: '0', timed_out: false });
    },
    { answer },
  );
  using user = new CliUser(service.url);
  const calls: [args: string[], command: string, others?: object][] = [
    [
      ['curl', '--url', 'http://127.0.0.1:9/x', '--json', '{}'],
      "exec curl --url http://127.0.0.1:9/x --json '{}'",
    ],
    [['grep', '-n', '-e', 'x', '--profile', 'f'], 'exec grep -n -e x --profile f'],
    [['-w', '/tmp', 'env', '-u', 'FOO', '--', '-h'], 'exec env -u FOO -- -h', { cwd: '/tmp' }],
    [['-u', 'node', '--', 'sh', '-e', 'x'], 'exec sh -e x', { user: 'node' }],
  ];
  for (const [args, command, others] of calls) {
    const { code, stderr } = await user.run(['exec', SANDBOX_ID, ...args]);
    assert.equal(code, 0, stderr);
    assert.deepEqual(commands.pop(), { command, timeout: 86_400, ...others });
  }
  const after = await user.run(['exec', '--', SANDBOX_ID, '-x', '--json']);
  assert.deepEqual([after.code, commands.pop()], [0, { command: 'exec -x --json', timeout: 86_400 }]);
  for (const args of [
    ['exec', SANDBOX_ID, '--nope', '--', 'true'],
    ['exec', SANDBOX_ID],
  ])
    assert.equal((await user.run(args)).code, 125);
  assert.match((await user.run(['exec', SANDBOX_ID, '--help'])).stdout, /^Usage: coppice exec/u);
});

test('run destroys its sandbox also when a signal arrives while the connection opens', async () => {
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    let isAsked = false;
    const beforeTicket = async (): Promise<void> => {
      isAsked = true;
      await new Promise(() => undefined);
    };
    await using service = await LoopbackSockets.start(() => undefined, { answer, beforeTicket });
    using user = new CliUser(service.url);
    const running = user.start('run', '--timeout', '0', 'coppice/base:1', '--', 'true');
    await until('the request of a ticket', () => isAsked);
    running.child.kill(signal);
    const { code, stderr } = await running.result();
    assert.deepEqual([code, stderr], [signal === 'SIGTERM' ? 143 : 130, '']);
    assert.deepEqual(
      service.seen.map(({ method, url }) => `${method} ${url}`).at(-1),
      `DELETE /v1/runs/${SANDBOX_ID}`,
    );
  }
});

test('run destroys its sandbox when a signal arrives during the create, once that is done', async () => {
  const created = Promise.withResolvers<void>();
  let isAsked = false;
  await using service = await LoopbackSockets.start(() => undefined, {
    answer: async ({ method }, response) => {
      if (method === 'DELETE') return sendJson(response, { body: DESTROYED });
      isAsked = true;
      await created.promise;
      sendJson(response, { status: 201, body: wireRecord() });
    },
  });
  using user = new CliUser(service.url);
  const running = user.start('run', 'coppice/base:1', '--', 'true');
  await until('the create', () => isAsked);
  running.child.kill('SIGHUP');
  created.resolve();
  assert.equal((await running.result()).code, 129);
  // The signal may also arrive just after the create. Then the service may read the request for the command after the DELETE.
  const destroyed = service.seen.filter(({ method }) => method === 'DELETE').map(({ url }) => url);
  assert.deepEqual(destroyed, [`/v1/runs/${SANDBOX_ID}`]);
});

test('an error of the connection is reported after the output before it', async () => {
  await using service = await LoopbackSockets.start(
    async (peer) => {
      await peer.next();
      peer.send(
        { type: 'stdout', data: 'before\n' },
        { type: 'error', ...errorBody('guest_unreachable', 'it is lost') },
      );
      peer.socket.close(1011);
    },
    { answer },
  );
  using user = new CliUser(service.url);
  const { code, stdout, stderr } = await user.run(['exec', SANDBOX_ID, '--', 'x'], 'y\n'.repeat(MANY_BYTES));
  assert.deepEqual([code, stdout, stderr], [125, 'before\n', 'coppice: it is lost\n']);
});
