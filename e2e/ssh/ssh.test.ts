/** Sessions of OpenSSH in a sandbox, through the API. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import type { CliProcess } from '../../packages/cli/src/testing/cli-process.ts';
import { findFreePort } from '../../packages/server/src/control/testing/free-port.ts';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { shows } from '../fixtures/cli/published-cli.ts';
import { RoleMemory } from '../fixtures/service/role-memory.ts';
import { shared as openShared } from '../fixtures/service/shared.ts';
import { SshUser } from '../fixtures/ssh/ssh-user.ts';

const TIMEOUT_MS = 60_000;
const GUEST_PORT = 9100;
const MAX_GROWTH_MIB = 64;
const MIB = 1 << 20;
/** More than all buffers on the way hold. */
const READ_MIB = 40;
/** Bytes that the program writes at once. */
const CHUNK = 65_536;

describe('SSH', () => {
  let shared: Awaited<ReturnType<typeof openShared>>;
  let person: SshUser;
  let id = '';
  let host = '';
  before(async () => {
    shared = await openShared();
    const body = { image: BASE_IMAGE, mem_mib: 512, timeout: 3600, auto_hibernate: true };
    ({ id } = await shared.api.create(body));
    host = `${id}.coppice`;
    person = new SshUser();
    await person.login(shared.service.address);
  });
  after(async () => {
    person[Symbol.dispose]();
    await shared.api.destroy(id);
  });

  const waitFor = (what: string, look: () => unknown): Promise<unknown> =>
    pollUntil(
      { step: what, timeoutMs: TIMEOUT_MS, intervalMs: 100 },
      async () => (await look()) || undefined,
    );
  const isRunning = async (pattern: string, sandbox = id): Promise<boolean> =>
    (await shared.api.exec(sandbox, `pgrep -f '[${pattern[0]}]${pattern.slice(1)}'`)).exit_code === 0;
  const waitForEnd = (pattern: string, sandbox = id): Promise<unknown> =>
    waitFor(`the end of ${pattern}`, async () => !(await isRunning(pattern, sandbox)));
  /** Starts a command in the sandbox, and waits until it runs. */
  const startReady = async (script: string, sandbox = host): Promise<CliProcess> => {
    const running = person.start('ssh', [sandbox, `echo ready; ${script}`]);
    await shows(running, /ready/u);
    return running;
  };

  test('a command has input with an end, two outputs, its own exit code and the place of the sandbox', async () => {
    const script = 'cat; pwd; id -un; echo $HOME $SHELL >&2; exit 7';
    const { code, stdout, stderr } = await person.run('ssh', [host, script], 'typed\n');
    assert.deepEqual([code, stdout, stderr], [7, 'typed\n/workspace\nroot\n', '/root /usr/bin/bash\n']);
    assert.equal((await person.run('ssh', [host, 'true'])).code, 0);
  });

  test('coppice ssh does the same, and says with 125 that it could not start SSH', async () => {
    const { cli } = person;
    const done = await cli.run(['ssh', id.slice(0, 12), '--', 'cat; exit 9'], 'typed\n');
    assert.deepEqual([done.code, done.stdout], [9, 'typed\n'], done.stderr);
    const words = await cli.run(['ssh', id, '--', 'sh', '-c', 'echo "$1|$2"', 'sh', 'a  b', "it's"]);
    assert.equal(words.stdout, "a  b|it's\n", words.stderr);
    const absent = await cli.run(['ssh', 'no-such-sandbox', '--', 'true']);
    assert.equal(absent.code, 125);
    assert.match(absent.stderr, /^coppice: .*no-such-sandbox/u);
  });

  test('a terminal has the size of the window, is resized, and passes Ctrl-C to its program', async () => {
    const guest = `trap "stty size" WINCH; trap "echo interrupted; exit 5" INT; stty size; echo $TERM; while :; do sleep 0.1; done`;
    const resize = '(until [ -e go ]; do sleep 0.1; done; stty rows 50 cols 132 </dev/tty) &';
    const line = `stty rows 33 cols 91; ${resize} ssh -tt ${host} '${guest}'; echo code=$?; stty -a`;
    const running = person.startOnTerminal(line);
    await shows(running, /33 91\r\nxterm\r\n/u);
    writeFileSync(person.local('go'), '');
    await shows(running, /50 132\r\n/u);
    running.child.stdin.write('\u0003');
    const { stdout } = await running.result();
    assert.match(stdout, /interrupted\r\n/u);
    assert.match(stdout, /code=5\r\n/u);
    assert.match(stdout, / icanon .* echo /su, 'the terminal of the user is restored');
  });

  test('an interactive shell reads commands to its end', async () => {
    const running = person.startOnTerminal(`ssh ${host}; echo code=$?`);
    await shows(running, /[#$] $/u);
    running.child.stdin.write('echo $((40 + 2)) $-\r');
    await shows(running, /42 \S*i/u);
    running.child.stdin.write('exit 6\r');
    assert.match((await running.result()).stdout, /code=6\r\n/u);
  });

  test('what a client leaves ends with it: an interrupt, a kill, and a killed proxy', async () => {
    const interrupted = await startReady('sleep 7001');
    interrupted.child.kill('SIGINT');
    await waitForEnd('sleep 7001');
    const killed = await startReady('sleep 7002');
    killed.child.kill('SIGKILL');
    await waitForEnd('sleep 7002');
    const terminal = person.start('ssh', ['-tt', host, 'echo ready; sleep 7003']);
    await shows(terminal, /ready/u);
    terminal.child.kill('SIGKILL');
    await waitForEnd('sleep 7003');
    await waitForEnd('coppice-ssh');
    await Promise.all([interrupted, killed, terminal].map((one) => one.result()));
  });

  test('a port of the sandbox is reached on this machine, and nothing but its loopback', async () => {
    const serve = `cd /etc && exec python3 -m http.server --bind 127.0.0.1 ${GUEST_PORT}`;
    await shared.api.call('POST', `/v1/runs/${id}/commands`, { body: { command: serve } });
    const listens = `python3 -c "import socket; socket.create_connection(('127.0.0.1', ${GUEST_PORT}))"`;
    await waitFor('the server', async () => (await shared.api.exec(id, listens)).exit_code === 0);
    const [port, other] = [await findFreePort(), await findFreePort()];
    const forward = ['-L', `${port}:localhost:${GUEST_PORT}`, '-L', `${other}:192.0.2.1:80`];
    const running = person.cli.start('ssh', ...forward, id, '--', 'echo ready; exec sleep 7010');
    await shows(running, /ready/u);
    const name = await (await fetch(`http://127.0.0.1:${port}/hostname`)).text();
    assert.equal(name, (await shared.api.exec(id, 'cat /etc/hostname')).stdout);
    await assert.rejects(fetch(`http://127.0.0.1:${other}/`));
    running.child.kill('SIGTERM');
    const { stderr } = await running.result();
    assert.match(stderr, /sandboxes forward only to their own loopback/u);
  });

  test('a client that does not read stops the program, and costs the service little memory', async () => {
    const memory = new RoleMemory(shared.service);
    const write = `while head -c ${CHUNK} /dev/zero; do echo >> /tmp/sent; done`;
    const line = `ssh ${host} '${write}' | (until [ -e read ]; do sleep 0.1; done; head -c ${READ_MIB * MIB} | sha256sum)`;
    const running = person.startOnTerminal(line);
    const written = async (): Promise<number> =>
      Number((await shared.api.exec(id, 'cat /tmp/sent 2>/dev/null | wc -l')).stdout) * CHUNK;
    let last = -1;
    await pollUntil({ step: 'a program that waits', timeoutMs: TIMEOUT_MS, intervalMs: 2000 }, async () => {
      const now = await written();
      const isStopped = now > 0 && now === last;
      last = now;
      return isStopped || undefined;
    });
    const { text, maxMiB } = memory.growth();
    assert.ok(maxMiB < MAX_GROWTH_MIB, text);
    assert.ok(last < 32 * MIB, `the program has written ${last} bytes`);
    writeFileSync(person.local('read'), '');
    const zeros = createHash('sha256')
      .update(Buffer.alloc(READ_MIB * MIB))
      .digest('hex');
    await shows(running, new RegExp(zeros, 'u'));
    // OpenSSH keeps the connection although its output has no reader any more, because the server is not OpenSSH.
    running.child.stdin.write('\u0003');
    await running.result();
    await waitForEnd(`head -c ${CHUNK}`);
  });

  test('another host key and a wrong API key are refused', async () => {
    const other = await shared.api.create({ image: BASE_IMAGE, mem_mib: 256, timeout: 0 });
    const command = `${process.execPath} ${person.cli.program} ssh-host-key -- ${other.id}`;
    const swapped = await person.run('ssh', ['-o', `KnownHostsCommand=${command}`, host, 'echo in']);
    assert.deepEqual([swapped.code, swapped.stdout], [255, '']);
    assert.match(swapped.stderr, /Host key verification failed/u);
    await shared.api.destroy(other.id);
    const service = {
      SANDBOX_BASE_URL: shared.service.address,
      SANDBOX_API_KEY: `cop_live_us_${'0'.repeat(40)}`,
    };
    const env = { ...person.environment, ...service };
    const running = person.start('ssh', [host, 'echo in'], env);
    const { code, stdout, stderr } = await running.result();
    assert.deepEqual([code, stdout], [255, '']);
    assert.match(stderr, /coppice login/u);
  });

  test('a connection continues while its sandbox is forked; the copy has none of it, and another host key', async () => {
    const running = await startReady('cat; sleep 0.1');
    const answer = await shared.api.call('POST', `/v1/runs/${id}/fork`, { body: { count: 1 } });
    assert.ok(answer.status < 300, answer.text);
    const child = (JSON.parse(answer.text) as { id: string }[])[0]?.id ?? '';
    running.child.stdin.write('after the fork\n');
    await shows(running, /after the fork/u);
    await waitForEnd('coppice-ssh', child);
    const keys = [await person.cli.read('ssh-host-key', id), await person.cli.read('ssh-host-key', child)];
    assert.notEqual(keys[0], keys[1]);
    assert.equal(await person.read(`${child}.coppice`, 'echo in the copy'), 'in the copy');
    running.child.stdin.end();
    assert.equal((await running.result()).code, 0);
    await shared.api.destroy(child);
  });

  test('hibernation ends a connection with a reason; the next one resumes the sandbox, with the same host key', async () => {
    const key = await person.cli.read('ssh-host-key', id);
    const running = await startReady('sleep 7020');
    const hibernated = await shared.api.call('POST', `/v1/runs/${id}/hibernate`);
    assert.ok(hibernated.status < 300, hibernated.text);
    const { code, stderr } = await running.result();
    assert.equal(code, 255);
    assert.match(stderr, /^coppice: /mu);
    assert.equal(await person.read(host, 'echo back'), 'back');
    assert.equal(await person.cli.read('ssh-host-key', id), key);
    await waitForEnd('sleep 7020');
  });

  test('the audit log has the start and the end of connections, with the user', async () => {
    await person.read(`nobody@${host}`, 'true');
    await waitFor('the entries', async () => {
      const { text } = await shared.api.call('GET', `/v1/runs/${id}/audit`);
      const entries = text
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as { event: string; seq: number; data: Record<string, unknown> });
      const opened = entries.findLast(
        ({ event, data }) => event === 'ssh.opened' && data['user'] === 'nobody',
      );
      return (
        opened !== undefined &&
        entries.some(({ event, data }) => event === 'ssh.closed' && data['start_seq'] === opened.seq)
      );
    });
  });

  test('a killed control ends a connection with a reason, and the next one works', async () => {
    const running = await startReady('sleep 7030');
    await shared.service.killRole('control');
    const { code, stderr } = await running.result();
    assert.equal(code, 255);
    assert.match(stderr, /^coppice: .*connection/mu);
    await person.login(shared.service.address);
    assert.equal(await person.read(host, 'echo back'), 'back');
    await waitForEnd('sleep 7030');
  });

  test('a destroyed sandbox ends its connections, and is refused', async () => {
    const { id: short } = await shared.api.create({ image: BASE_IMAGE, mem_mib: 256, timeout: 0 });
    const running = await startReady('sleep 7040', `${short}.coppice`);
    await shared.api.destroy(short);
    const ended = await running.result();
    assert.equal(ended.code, 255);
    assert.match(ended.stderr, /^coppice: /mu);
    const { code, stderr } = await person.run('ssh', [`${short}.coppice`, 'true']);
    assert.equal(code, 255);
    assert.match(stderr, /^coppice: /mu);
  });
});
