import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { LoopbackServer, SANDBOX_ID } from '../../../sdk/src/testing/loopback-server.ts';
import { answerSandbox, CliUser, until } from '../testing/cli-process.ts';

const HOSTILE = '\u009b31m\u202e';

function entry(seq: number, command = 'x'): string {
  const hmac = `sha256:${'0'.repeat(64)}`;
  const ts = '2026-11-21T06:30:00.000Z';
  return `${JSON.stringify({ seq, ts, sandbox_id: SANDBOX_ID, event: 'exec.start', data: { command }, hmac })}\n`;
}

/** Sends a log that ends, or whose connection stays open. */
function startService(entries: readonly string[], { ends }: { ends: boolean }): Promise<LoopbackServer> {
  return LoopbackServer.start(
    answerSandbox((_, response) => {
      response.writeHead(200, { 'content-type': 'application/x-ndjson' });
      for (const line of entries) response.write(line);
      if (ends) response.end();
    }),
  );
}

test('a log is written to a new file only, and an existing one is left as it is', async () => {
  await using server = await startService([entry(1, HOSTILE), entry(2)], { ends: true });
  using user = new CliUser(server.url);
  const path = join(user.home, 'log');
  assert.equal((await user.run(['audit', SANDBOX_ID, '-o', 'log'])).code, 0);
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n');
  assert.deepEqual(
    lines.map((line) => JSON.parse(line) as unknown),
    [entry(1, HOSTILE), entry(2)].map((line) => JSON.parse(line) as unknown),
  );
  // oxlint-disable-next-line no-control-regex
  assert.doesNotMatch(lines.join(''), /[\u007f-\u009f\u202e]/u);
  writeFileSync(path, 'kept');
  const { code, stderr } = await user.run(['audit', SANDBOX_ID, '-o', 'log']);
  assert.deepEqual(
    [code, stderr],
    [1, 'coppice: --output: log cannot be created: it exists already: remove it, or name another\n'],
  );
  assert.equal(readFileSync(path, 'utf8'), 'kept');
});

test('a disk that is full is an error in one line, and leaves no part of a log', async () => {
  const entries = Array.from({ length: 200 }, (_, index) => entry(index + 1, 'x'.repeat(1000)));
  await using server = await startService(entries, { ends: true });
  using user = new CliUser(server.url);
  const { stdout, stderr } = await user.runBash(
    `ulimit -f 8; coppice audit ${SANDBOX_ID} -o log; echo code $?`,
  );
  assert.equal(stdout, 'code 1\n');
  assert.match(stderr, /^coppice: --output: log cannot be written: EFBIG.*\n$/u);
  assert.ok(!existsSync(join(user.home, 'log')));
});

test('an interrupt removes the part of a log, except one that is followed', async () => {
  await using server = await startService([entry(1)], { ends: false });
  for (const options of [[], ['--follow']]) {
    using user = new CliUser(server.url);
    const path = join(user.home, 'log');
    const running = user.start('audit', SANDBOX_ID, '-o', 'log', ...options);
    await until('the first entry', () => existsSync(path) && readFileSync(path, 'utf8') === entry(1));
    running.child.kill('SIGINT');
    assert.equal((await running.result()).code, 130);
    assert.equal(existsSync(path), options.length > 0);
  }
});

test('the log of the organization is written as it is sent, with its filters', async () => {
  const sent = {
    seq: 3,
    ts: '2026-11-21T06:30:00.000Z',
    organization_id: 'org1',
    audit_key_id: 'ask1',
    event: 'team.created',
    actor: { type: 'user', id: 'user1', address: null },
    data: { team_id: 'team1', name: 'é' },
    hmac: `sha256:${'0'.repeat(64)}`,
  };
  await using server = await LoopbackServer.start((_, response) => {
    response.writeHead(200, { 'content-type': 'application/x-ndjson' }).end(`${JSON.stringify(sent)}\n`);
  });
  using user = new CliUser(server.url);
  const args = ['audit', 'organization', '--after', '2', '--event', 'team.created', '--actor', 'user1'];
  const { code, stdout } = await user.run(args);
  assert.equal(code, 0);
  assert.deepEqual(JSON.parse(stdout), sent);
  assert.equal(server.last.url, '/v1/organization/audit?after=2&event=team.created&actor=user1');
  const refused = await user.run(['audit', 'organization', '--after', 'x']);
  assert.match(refused.stderr, /--after: "x" is not the number of an entry/u);
});
