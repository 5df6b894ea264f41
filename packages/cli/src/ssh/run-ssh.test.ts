import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { SANDBOX_ID, sendJson, wireRecord } from '../../../sdk/src/testing/loopback-server.ts';
import { LoopbackSockets } from '../../../sdk/src/testing/loopback-sockets.ts';
import { answerSandbox, CliUser, until } from '../testing/cli-process.ts';

/** Stands in for ssh: prints its arguments, and tells of its end. */
const SSH = `#!/bin/sh
for word in "$@"; do echo "[$word]"; done
trap 'echo ended; exit 3' TERM HUP
echo ready
case "$*" in *" wait") while :; do sleep 0.1; done;; esac
exit 7
`;
const answer = answerSandbox((_request, response) => sendJson(response, { body: wireRecord() }));

let directory = '';
let service: LoopbackSockets;
before(async () => {
  directory = mkdtempSync(join(tmpdir(), 'run-ssh-'));
  writeFileSync(join(directory, 'ssh'), SSH, { mode: 0o755 });
  service = await LoopbackSockets.start(
    async (peer) => {
      await peer.left();
    },
    { answer },
  );
});
after(async () => {
  rmSync(directory, { recursive: true });
  await service[Symbol.asyncDispose]();
});

const newUser = (path = `${directory}:${process.env['PATH']}`): CliUser =>
  new CliUser(service.url, { PATH: path });

test('ssh gets the sandbox, the user, forwarded ports and the words of the command as one line', async () => {
  using user = newUser();
  const options = ['-t', '-u', 'root', '-L', '1:localhost:2', '-L', '3:localhost:4'];
  const { code, stdout, stderr } = await user.run(['ssh', ...options, SANDBOX_ID, '--', 'echo', 'a  b']);
  assert.equal(code, 7, stderr);
  assert.ok(stdout.includes('[-o]\n[StrictHostKeyChecking=yes]\n'));
  const end = ['-t', '-L', '1:localhost:2', '-L', '3:localhost:4', '-l', 'root', '--', SANDBOX_ID];
  const words = [...end, "exec echo 'a  b'"].map((word) => `[${word}]\n`).join('');
  assert.ok(stdout.endsWith(`${words}ready\n`), stdout);
});

test('without a command ssh gets none', async () => {
  using user = newUser();
  const { stdout } = await user.run(['ssh', SANDBOX_ID]);
  assert.ok(stdout.endsWith(`[--]\n[${SANDBOX_ID}]\nready\n`), stdout);
});

test('ssh does not outlive coppice', async () => {
  using user = newUser();
  for (const signal of ['SIGTERM', 'SIGHUP'] as const) {
    const running = user.start('ssh', SANDBOX_ID, '--', 'wait');
    await until('ssh', () => running.stdout.includes('ready'));
    running.child.kill(signal);
    const { code, stdout } = await running.result();
    assert.match(stdout, /ended\n$/u);
    assert.equal(code, 3);
  }
});

test('a machine without ssh is told what to install', async () => {
  using user = newUser('/nonexistent');
  const { code, stderr } = await user.run(['ssh', SANDBOX_ID]);
  assert.equal(code, 125);
  assert.match(stderr, /install OpenSSH 8\.5 or newer/u);
});
