import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { SANDBOX_ID, sendJson, TEST_KEY, wireRecord } from '../../../sdk/src/testing/loopback-server.ts';
import { LoopbackSockets } from '../../../sdk/src/testing/loopback-sockets.ts';
import { answerSandbox, CliUser } from '../testing/cli-process.ts';

const SECRET = 'hunter2secret';

function startService(): Promise<LoopbackSockets> {
  return LoopbackSockets.start(
    async (peer) => {
      const { env } = (await peer.next()) as { env?: object };
      peer.end(
        { type: 'stdout', data: JSON.stringify(env ?? null) },
        { type: 'exit', data: '0', timed_out: false },
      );
    },
    { answer: answerSandbox((_, response) => sendJson(response, { status: 201, body: wireRecord() })) },
  );
}

test('a variable has its value from the option, from the own environment, or from a file', async () => {
  await using service = await startService();
  using user = new CliUser(service.url, { TOKEN: SECRET, EMPTY: '' });
  writeFileSync(
    join(user.home, 'app.env'),
    `# comment\n\nA=from file\nexport B="x"=y \nTOKEN\r\n__proto__=z\n`,
  );
  const { code, stdout, stderr } = await user.run(
    'exec --env-from app.env -e EMPTY -e A=b=c --env C='.split(' ').concat(SANDBOX_ID, 'x'),
  );
  assert.equal(code, 0, stderr);
  assert.deepEqual(
    Object.entries(JSON.parse(stdout) as object).toSorted(([a], [b]) => a.localeCompare(b)),
    Object.entries({ ['__proto__']: 'z', A: 'b=c', B: '"x"=y ', C: '', EMPTY: '', TOKEN: SECRET }),
  );
  const piped = await user.runBash(`coppice exec --env-from <(echo P=1) ${SANDBOX_ID} x`);
  assert.equal(piped.stdout, '{"P":"1"}', piped.stderr);
  assert.equal((await user.run(['exec', SANDBOX_ID, 'x'])).stdout, 'null');
});

test('a sandbox is created with variables, a directory and a name', async () => {
  await using service = await startService();
  using user = new CliUser(service.url, { TOKEN: SECRET });
  await user.run(['create', '-e', 'TOKEN', '-w', '/srv', '--name', 'build', 'coppice/base:1']);
  assert.deepEqual(JSON.parse(service.seen.at(-1)?.body.toString() ?? ''), {
    image: 'coppice/base:1',
    env: { TOKEN: SECRET },
    cwd: '/srv',
    name: 'build',
  });
});

test('no message includes a value, or a text that may be one', async () => {
  await using service = await startService();
  using user = new CliUser(service.url);
  const local = (name: string, text: string): string => {
    writeFileSync(join(user.home, name), text);
    return name;
  };
  const cases: [options: string[], message: RegExp][] = [
    [['-e', `=${SECRET}`], /^coppice: --env: there is no name before the "="\n$/u],
    [['-e', SECRET], /^coppice: --env: a name without "=" .* export it, or give key=value\n$/u],
    [['--env-from', local('a', `A=1\n${SECRET}\n`)], /--env-from: line 2 of a: a name without "="/u],
    [['--env-from', local('b', `=${SECRET}\n`)], /line 1 of b: there is no name/u],
    [['--env-from', local('c', `A=${SECRET.repeat(6000)}`)], /c is larger than 64 KiB/u],
    [['--env-from', 'absent'], /absent cannot be read: ENOENT/u],
    [['--url', `http://user:${SECRET}@x`], /--url must not contain a user, a password/u],
    [['--url', `user:${SECRET}@x`], /--url must be an http or https address such as/u],
    [['--url', `https://x/?key=${SECRET}`], /--url must not contain .* a query/u],
  ];
  for (const [options, message] of cases) {
    const { code, stdout, stderr } = await user.run(['exec', ...options, SANDBOX_ID, '--', 'true']);
    assert.deepEqual([code, stdout], [125, '']);
    assert.match(stderr, message);
    assert.ok(!stderr.includes(SECRET) && !stderr.includes(TEST_KEY), stderr);
  }
  const inEnvironment = { SANDBOX_API_KEY: '', SANDBOX_BASE_URL: `http://user:${SECRET}@x` };
  using other = new CliUser(undefined, inEnvironment);
  for (const args of [['ls'], ['login', '--key-stdin']]) {
    const { code, stderr } = await other.run(args, TEST_KEY);
    assert.equal(code, 2);
    assert.match(stderr, /^coppice: SANDBOX_BASE_URL must not contain a user/u);
    assert.ok(!stderr.includes(SECRET) && !stderr.includes(TEST_KEY), stderr);
  }
});
