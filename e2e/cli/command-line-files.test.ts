/** Copies, detached commands and copied sandboxes with the command line as published; and what it survives. */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { findFreePort } from '../../packages/server/src/control/testing/free-port.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { PublishedCli, shows } from '../fixtures/cli/published-cli.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import { API_KEY, type Service } from '../fixtures/service/service.ts';

const TIMEOUT_MS = 60_000;
const MIB = 1 << 20;
const LINES = 100;
const COUNT = `i=0; while [ $i -lt ${LINES} ]; do i=$((i+1)); echo $i; sleep 0.05; done; exit 7`;

describe('the command line, with files and over restarts', () => {
  let service: Service;
  let cli: PublishedCli;
  let id = '';
  before(async () => {
    // The command line finds it again after a restart.
    const env = { COPPICE_LISTEN: `127.0.0.1:${await findFreePort()}` };
    service = await startPrepared({ instance: 9, env });
    cli = new PublishedCli();
    const login = await cli.run(['login', '--url', service.address, '--key-stdin'], `${API_KEY}\n`);
    assert.equal(login.code, 0, login.stderr);
    id = await cli.read('create', '--mem', '256m', '--timeout', '0', 'coppice/base:1');
  });
  after(async () => {
    cli[Symbol.dispose]();
    await service[Symbol.asyncDispose]();
  });

  const waitFor = (what: string, look: () => unknown): Promise<unknown> =>
    pollUntil({ step: what, timeoutMs: TIMEOUT_MS, intervalMs: 50 }, async () => (await look()) || undefined);
  const local = (...path: string[]): string => join(cli.home, ...path);
  const sha256 = (bytes: Buffer | string): string => createHash('sha256').update(bytes).digest('hex');

  test('a tree is copied both ways, with permissions, links and empty directories', async () => {
    const bytes = randomBytes(5 * MIB);
    mkdirSync(local('tree', 'deep', 'er'), { recursive: true });
    mkdirSync(local('tree', 'empty'));
    writeFileSync(local('tree', 'deep', 'er', 'bytes'), bytes);
    writeFileSync(local('tree', "it's $HOME"), '#!/bin/sh\n', { mode: 0o755 });
    symlinkSync('../deep/er/bytes', local('tree', 'deep', 'link'));
    symlinkSync('er', local('tree', 'deep', 'directory link'));
    for (let number = 0; number < 40; number += 1)
      writeFileSync(local('tree', `file ${number}`), `${number}`);
    const report = JSON.parse(await cli.read('cp', '--json', 'tree', `${id}:copied`)) as Record<
      string,
      unknown
    >;
    assert.deepEqual([report['files'], report['skipped']], [42, []]);
    const script =
      'sha256sum deep/er/bytes; stat -c %a "it\'s \\$HOME"; readlink deep/link "deep/directory link"; ls -A empty | wc -l; ls | wc -l';
    assert.deepEqual((await cli.read('exec', '--cwd', '/workspace/copied', id, '--', script)).split('\n'), [
      `${sha256(bytes)}  deep/er/bytes`,
      '755',
      '../deep/er/bytes',
      'er',
      '0',
      '43',
    ]);
    await cli.read('cp', `${id}:/workspace/copied`, 'back');
    assert.equal(sha256(readFileSync(local('back', 'deep', 'er', 'bytes'))), sha256(bytes));
    assert.equal(statSync(local('back', "it's $HOME")).mode & 0o777, 0o755);
    assert.equal(readlinkSync(local('back', 'deep', 'directory link')), 'er');
    assert.deepEqual(readdirSync(local('back', 'empty')), []);
    assert.equal(readdirSync(local('back')).length, 43);
    // A directory that exists gets the copy inside.
    await cli.read('cp', `${id}:copied/deep/er`, 'back/');
    assert.ok(existsSync(local('back', 'er', 'bytes')));
  });

  test('single files, standard input and standard output keep every byte', async () => {
    const bytes = randomBytes(3 * MIB);
    const up = await cli.run(['cp', '-', `${id}:/tmp/bytes`], bytes);
    assert.equal(up.code, 0, up.stderr);
    await cli.read('cp', `${id}:/tmp/bytes`, 'bytes');
    assert.equal(sha256(readFileSync(local('bytes'))), sha256(bytes));
    const piped = await cli.startOnTerminal(`coppice cp ${id}:/tmp/bytes - | sha256sum`).result();
    assert.ok(piped.stdout.includes(sha256(bytes)), piped.stdout);
    const slow = await cli.startOnTerminal(`coppice cp ${id}:/tmp/bytes - | (sleep 1; sha256sum)`).result();
    assert.ok(slow.stdout.includes(sha256(bytes)), slow.stdout);
    const absent = await cli.run(['cp', `${id}:/tmp/absent`, '.']);
    assert.equal(absent.code, 1);
    assert.match(absent.stderr, /^coppice: .*absent/u);
    assert.equal((await cli.run(['cp', 'a', 'b'])).code, 2);
  });

  test('a copy is open to no user whom the umask keeps out, also one of a link', async () => {
    await cli.read(
      'exec',
      id,
      '--',
      'cd /tmp && echo x > wide && chmod 777 wide && ln -s wide link && ln -s /tmp to',
    );
    const line = `umask 027; coppice cp ${id}:/tmp/wide wide && coppice cp ${id}:/tmp/link linked && coppice cp ${id}:/tmp/to/wide far; echo modes $(stat -c %a wide linked far)`;
    const { stdout } = await cli.startOnTerminal(line).result();
    assert.match(stdout, /modes 750 640 750\r\n$/u);
    writeFileSync(local('wide'), 'new');
    await cli.read('cp', 'wide', `${id}:/tmp/to`);
    assert.equal(await cli.read('exec', id, 'cat', '/tmp/wide'), 'new');
  });

  test('a sandbox is found by its name, and its processes have its variables and its directory', async () => {
    const secret = 'of my own environment';
    process.env['CLI_TEST_TOKEN'] = secret;
    const options = ['--name', 'named box', '-e', 'CLI_TEST_TOKEN', '-e', 'A=1', '--cwd', '/tmp'];
    const named = await cli.read('create', '--mem', '256m', ...options, 'coppice/base:1');
    delete process.env['CLI_TEST_TOKEN'];
    assert.match(
      await cli.read('ls', '--name', 'named box'),
      new RegExp(`\\n${named} +named box +running`, 'u'),
    );
    const show = ['exec', 'named box', 'sh', '-c', 'echo $CLI_TEST_TOKEN, $A, $PWD'];
    assert.equal(await cli.read(...show), `${secret}, 1, /tmp`);
    writeFileSync(local('app.env'), 'A=2\nB=3\n');
    await cli.read('cp', 'app.env', 'named box:app.env');
    assert.equal(await cli.read('exec', 'named box', 'cat', '/tmp/app.env'), 'A=2\nB=3');
    const taken = await cli.run(['create', '--name', 'named box', 'coppice/base:1']);
    assert.equal(taken.code, 1);
    const update = [
      'update',
      'named box',
      '--name',
      'box2',
      '--env-from',
      'app.env',
      '--cwd',
      '',
      '--label',
      'a=b',
    ];
    assert.match(await cli.read(...update), /^name: +box2\n(?:.*\n)*labels: +a=b$/mu);
    assert.equal(
      await cli.read('exec', 'box2', 'sh', '-c', 'echo $CLI_TEST_TOKEN, $A, $B, $PWD'),
      ', 2, 3, /workspace',
    );
    assert.match(await cli.read('metrics', 'box2'), /^memory on the host: +\d.* of 256 MiB$/mu);
    const { now } = JSON.parse(await cli.read('metrics', '--json', 'box2')) as {
      now: { cpu: { usedSeconds: number } };
    };
    assert.ok(now.cpu.usedSeconds > 0);
    assert.match(await cli.read('rm', 'box2'), new RegExp(`^${named} destroyed`, 'u'));
  });

  test('an interrupted copy leaves no half of a file', async () => {
    await cli.read('exec', id, '--', 'truncate -s 3G /tmp/large');
    const running = cli.start('cp', `${id}:/tmp/large`, 'large');
    await waitFor('the first bytes', () =>
      readdirSync(cli.home).some((name) => name.startsWith('.coppice-')),
    );
    running.child.kill('SIGINT');
    assert.equal((await running.result()).code, 130);
    assert.deepEqual(
      readdirSync(cli.home).filter((name) => /large|\.coppice-/u.test(name)),
      [],
    );
  });

  test('links of a hostile sandbox write nothing outside of the destination', async () => {
    mkdirSync(local('outside'));
    const script = `mkdir -p evil/sub && cd evil && ln -s ${local('outside')} away && ln -s ../../x up && ln -s sub in && mkfifo pipe && echo 1 > plain`;
    await cli.read('exec', id, '--', script);
    const { code, stderr } = await cli.run(['cp', `${id}:evil`, 'evil']);
    assert.equal(code, 0, stderr);
    assert.match(stderr, /left out evil\/away: the link leads out/u);
    assert.match(stderr, /left out evil\/pipe: not a file/u);
    assert.deepEqual(readdirSync(local('evil')).toSorted(), ['in', 'plain', 'sub']);
    // The guest replaces the link by a directory: the copy must not follow the link that it made before.
    await cli.read('exec', id, '--', 'cd evil && rm in plain && mkdir in && echo stolen > in/file');
    const again = await cli.run(['cp', `${id}:evil/.`, 'evil']);
    assert.equal(again.code, 1);
    assert.match(again.stderr, /evil\/in exists and is not a directory/u);
    assert.ok(!existsSync(local('evil', 'sub', 'file')));
    // A file takes the place of a link instead of being written through it.
    rmSync(local('evil', 'plain'));
    symlinkSync(local('outside', 'target'), local('evil', 'plain'));
    await cli.read('exec', id, '--', 'cd evil && rm -r in && echo fresh > plain');
    await cli.read('cp', `${id}:evil/.`, 'evil');
    assert.equal(readFileSync(local('evil', 'plain'), 'utf8'), 'fresh\n');
    assert.deepEqual(readdirSync(local('outside')), []);
  });

  test('logs -f continues when control is killed, without loss or repetition, and wait passes on the exit code', async () => {
    const command = await cli.read('commands', 'start', '--tag', 'count', id, '--', COUNT);
    const logs = cli.start('commands', 'logs', '-f', id, command);
    await shows(logs, /^20$/mu);
    await service.killRole('control');
    const { code, stdout, stderr } = await logs.result();
    assert.equal(code, 0, stderr);
    assert.equal(stdout, Array.from({ length: LINES }, (_, index) => `${index + 1}\n`).join(''));
    assert.equal((await cli.run(['commands', 'wait', id, command])).code, 7);
    assert.match(await cli.read('commands', 'ls', id, '--tag', 'count'), /exited 7 .* count +i=0; while/u);
    assert.equal(await cli.read('commands', 'logs', '--offset', '0', id, command), stdout.trimEnd());
  });

  test('logs without -f end where the output ends, and input and signals reach the command', async () => {
    const command = await cli.read(
      'commands',
      'start',
      '-i',
      id,
      '--',
      'read x; echo "got $x"; exec sleep 600',
    );
    assert.equal((await cli.run(['commands', 'input', id, command], 'word\n')).code, 0);
    await waitFor('the output', async () => (await cli.read('commands', 'logs', id, command)) === 'got word');
    await cli.read('commands', 'signal', id, command, 'sigterm');
    assert.equal((await cli.run(['commands', 'wait', id, command])).code, 143);
    assert.match(await cli.read('commands', 'get', id, command), /^exit code: +143$/mu);
    assert.ok((await cli.read('commands', 'ls', '--state', 'exited', id)).includes(command));
    assert.ok(!(await cli.read('commands', 'ls', '--state', 'running', id)).includes(command));
    const absent = await cli.run(['commands', 'wait', id, 'cmd00000000000000000000']);
    assert.equal(absent.code, 125);
    assert.match(absent.stderr, /there is no command cmd0{20} in this sandbox/u);
  });

  test('a shell that loses the service restores the terminal and exits with 125', async () => {
    const running = cli.startOnTerminal(`coppice shell ${id}; echo code=$?; stty -a`);
    await shows(running, /[#$] $/u);
    await service.stop();
    const { stdout } = await running.result();
    assert.match(stdout, /code=125\r/u);
    assert.match(stdout, / icanon .* echo /su);
    const away = await cli.run(['ls']);
    assert.equal(away.code, 1);
    assert.match(away.stderr, /^coppice: .*check that the service runs.*\n$/u);
    await service.launch();
    await service.waitFor('/healthz', TIMEOUT_MS, async () => (await service.health()) === 200);
    assert.equal(await cli.read('exec', id, '--', 'echo', 'back'), 'back');
  });

  test('forks, snapshots, rollback, hibernation and previews', async () => {
    await cli.read('exec', id, '--', 'echo one > /tmp/state');
    const children = (await cli.read('fork', '-n', '2', id)).split('\n');
    assert.equal(children.length, 2);
    assert.equal(await cli.read('exec', children[1]!, '--', 'cat', '/tmp/state'), 'one');
    await cli.read('rm', ...children);
    const snapshot = await cli.read('snapshot', '--name', 'first', id);
    await cli.read('exec', id, '--', 'echo two > /tmp/state');
    await cli.read('rollback', id, snapshot);
    assert.equal(await cli.read('exec', id, '--', 'cat', '/tmp/state'), 'one');
    const restored = await cli.read('restore', snapshot, '--label', 'from=snapshot');
    assert.equal(await cli.read('exec', restored, '--', 'cat', '/tmp/state'), 'one');
    await cli.read('rm', restored);
    assert.match(await cli.read('snapshots'), new RegExp(`${snapshot} +first +${id}`, 'u'));
    await cli.read('snapshots', 'update', snapshot, '--name', 'second', '--expires-in', '1h');
    assert.match(await cli.read('snapshots', 'get', snapshot), /^name: +second\n(?:.*\n)*expires: +20/mu);
    await cli.read('snapshots', 'rm', snapshot);
    assert.match(await cli.read('hibernate', id), /is hibernated$/u);
    assert.match(await cli.read('resume', id), /is running$/u);
    assert.match(await cli.read('timeout', id, '2h'), /expires after 2 h without use$/u);
    assert.equal(
      await cli.read('url', id, '3000', '--path', '/x'),
      `${service.address}/v1/runs/${id}/proxy/3000/x`,
    );
    assert.match(await cli.read('url', id, '3000', '--preview'), /^http/u);
    assert.match(await cli.read('usage'), /^active sandboxes: +\d+\n/u);
    assert.match(await cli.read('images'), /coppice\/base:1/u);
  });

  test('persistent disks are created, used, grown, copied and deleted', async () => {
    assert.equal(await cli.read('disks', 'create', 'data', '--size', '1'), 'data');
    const user = await cli.read('create', '--mem', '256m', '--disk', 'data', 'coppice/base:1');
    await cli.read('exec', user, '--', 'echo kept > /workspace/file');
    assert.match(await cli.read('disks'), new RegExp(`^data +\\S+ +1 GiB .* ${user}`, 'mu'));
    assert.match(await cli.read('disks', 'grow', 'data', '--size', '2'), /^data has 2 GiB$/u);
    await cli.read('disks', 'snapshot', 'data', 'clean', '--sync');
    assert.match(await cli.read('disks', 'snapshots', 'data'), /^clean +2 GiB/mu);
    await cli.read('disks', 'fork', 'data', 'copy', '--snapshot', 'clean');
    const used = await cli.run(['disks', 'rm', 'data']);
    assert.equal(used.code, 1);
    assert.match(used.stderr, new RegExp(`^coppice: .*${user}`, 'u'));
    await cli.read('rm', user);
    const run = ['run', '--mem', '256m', '--disk', 'copy', 'coppice/base:1', '--', 'cat', '/workspace/file'];
    assert.equal(await cli.read(...run), 'kept');
    assert.match(await cli.read('disks', 'get', 'copy'), /^parent: +data$/mu);
    await cli.read('disks', 'rm-snapshot', 'data', 'clean');
    await cli.read('disks', 'rm', 'copy', 'data');
    assert.equal(await cli.read('disks', '--json'), '[]');
  });

  test('an audit log is downloaded, and verified without the service', async () => {
    await cli.read('audit', id, '-o', 'log.ndjson');
    await cli.read('audit', 'get', '--head', id);
    const { code, stderr } = await cli.run(['audit', 'verify', 'log.ndjson', '--prefix']);
    assert.equal(code, 2);
    assert.match(stderr, /^coppice audit: the secret of the team or organization is required/u);
    const first = JSON.parse(readFileSync(local('log.ndjson'), 'utf8').split('\n')[0]!) as object;
    assert.deepEqual(Object.keys(first), ['seq', 'ts', 'sandbox_id', 'event', 'data', 'hmac']);
  });
});
