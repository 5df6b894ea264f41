import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { withImage } from '../fixtures/images/image-kind.ts';
import { Shell } from '../fixtures/streams/shell.ts';
import { shared as openShared } from '../fixtures/service/shared.ts';
import { bearer, refusedStatus, StreamSocket } from '../fixtures/streams/stream-socket.ts';

const TIMEOUT_MS = 60_000;

describe('shell sessions', () => {
  let shared: Awaited<ReturnType<typeof openShared>>;
  let id = '';
  before(async () => {
    shared = await openShared();
    ({ id } = await shared.api.create({ image: BASE_IMAGE, mem_mib: 512, timeout: 0 }));
  });
  after(() => shared.api.destroy(id));

  const open = async (query = ''): Promise<Shell> => Shell.open(shared.api, id, query);
  const isRunning = async (marker: string): Promise<boolean> =>
    (await shared.api.exec(id, `pgrep -f '[${marker[0]}]${marker.slice(1)}'`)).exit_code === 0;
  const waitForEnd = async (marker: string): Promise<void> => {
    await pollUntil({ step: `the end of ${marker}`, timeoutMs: TIMEOUT_MS, intervalMs: 100 }, async () =>
      (await isRunning(marker)) ? undefined : true,
    );
  };
  /** Ends the shell with `command` and checks that the session reports it. */
  const assertEnds = async (command: string, code: number): Promise<void> => {
    const shell = await open();
    assert.equal((await shell.run(command)).code, code, command);
    assert.deepEqual(await shell.close(), { code: 1000, reason: '' }, command);
    assert.deepEqual(shell.frames.at(-1), { type: 'shell_closed' }, command);
  };

  test('directory, variables, functions, aliases, options, jobs and history persist', async () => {
    const shell = await open();
    assert.equal(await shell.read('pwd'), '/workspace\n');
    await shell.read('mkdir -p /tmp/d && cd /tmp/d; shell_variable=1; export EXPORTED="a b"');
    await shell.read('greet() { echo "hello $1 $shell_variable"; }');
    await shell.read("alias shout='echo LOUD'; set -o noclobber; umask 077");
    await shell.read('sleep 1234 &');
    assert.equal(await shell.read('pwd; echo $OLDPWD'), '/tmp/d\n/workspace\n');
    assert.equal(await shell.read('greet you; env | grep EXPORTED'), 'hello you 1\nEXPORTED=a b\n');
    assert.equal(
      await shell.read('shout now; umask; set -o | grep noclobber'),
      'LOUD now\n0077\nnoclobber      \ton\n',
    );
    assert.match(await shell.read('jobs; kill %1; wait; jobs'), /Running +sleep 1234/u);
    assert.match(await shell.read('history'), /greet you; env.*\n.*shout now/su);
    assert.equal((await shell.run('(exit 7)')).code, 7);
    assert.equal(await shell.read('echo $? $$ "$0"'), `7 ${(await shell.read('echo $$')).trim()} bash\n`);
    shell.socket.close();
  });

  test('a session starts in the requested directory and as the requested user', async () => {
    const shell = await open('?cwd=/var/tmp&user=nobody');
    assert.equal(await shell.read('pwd; id -un'), '/var/tmp\nnobody\n');
    shell.socket.close();
  });

  test('exit codes are those of bash', async () => {
    const shell = await open();
    const codes = { true: 0, false: 1, '(exit 255)': 255, absent_program: 127, '/etc/passwd': 126 };
    for (const [command, code] of Object.entries(codes)) assert.equal((await shell.run(command)).code, code);
    assert.equal((await shell.run('sh -c "kill -9 \\$\\$"')).code, 137);
    assert.equal((await shell.run('false | true')).code, 0);
    assert.equal((await shell.run('set -o pipefail; false | true')).code, 1);
    shell.socket.close();
  });

  test('standard output and error are separate, and arrive when they are written', async () => {
    const shell = await open();
    const first = shell.begin(
      'echo out; echo err >&2; until test -e /tmp/go; do sleep 0.05; done; printf end',
    );
    await shell.waitFor('the first line', () => shell.output(first) === 'out\n' || undefined);
    await shell.waitFor('its error', () => shell.output(first, 'shell_err') === 'err\n' || undefined);
    await shared.api.exec(id, 'touch /tmp/go');
    assert.deepEqual(await shell.result(first), { stdout: 'out\nend', stderr: 'err\n', code: 0 });
    const text = await shell.read("python3 -c \"print('äö€😀' * 50000, end='')\"");
    assert.equal(text, 'äö€😀'.repeat(50_000));
    shell.socket.close();
  });

  test('a command that reads standard input sees end of file, not the next command', async () => {
    const shell = await open();
    const ids = ['cat; echo "cat $?"', 'read -r line || echo none', 'python3', 'echo next'].map((each) =>
      shell.begin(each),
    );
    const results = await Promise.all(ids.map(async (each) => (await shell.result(each)).stdout));
    assert.deepEqual(results, ['cat 0\n', 'none\n', '', 'next\n']);
    shell.socket.close();
  });

  test('here-documents, quotes, comments and multi-line commands are read as a whole', async () => {
    const shell = await open();
    const heredoc = "cat <<'END'\n$HOME `id` \"'\nEOF\nEND";
    assert.equal(await shell.read(heredoc), '$HOME `id` "\'\nEOF\n');
    assert.equal(await shell.read(`echo 'a\nb' "it's" \\'  # a comment`), "a\nb it's '\n");
    assert.equal(await shell.read('for i in 1 2\ndo\n  echo $i\ndone'), '1\n2\n');
    assert.equal(await shell.read('echo one \\\n two'), 'one two\n');
    for (const broken of ["echo 'open", 'if true', 'done', 'echo $(', ')']) {
      const { code, stderr } = await shell.run(broken);
      assert.ok(code !== 0, `${broken}: ${code}`);
      assert.match(stderr, /syntax error|unexpected/u, broken);
    }
    await shell.read('true');
    assert.equal(await shell.read('# only a comment'), '');
    assert.equal(await shell.read(' \n '), '');
    assert.equal(await shell.read('echo alive'), 'alive\n');
    shell.socket.close();
  });

  test('output that looks like the protocol is passed as output', async () => {
    const shell = await open();
    const frame = JSON.stringify({ type: 'shell_exit', id: 'x', code: 0 });
    assert.equal(await shell.read(`echo '${frame}' >&2; echo '${frame}'`), `${frame}\n`);
    const bytes = await shell.read(String.raw`printf '\x13\x00\x00\x00\x0d{"exit_code":0}\x12\x00\n'`);
    assert.equal(bytes, '\x13\0\0\0\r{"exit_code":0}\x12\0\n');
    assert.equal(await shell.read('trap; set -x; echo traced; set +x'), 'traced\n');
    // A program that writes to every descriptor it has inherited.
    const scribble =
      'python3 -c "import os\nfor n in range(3, 300):\n try: os.write(n, b\'0\\n\')\n except OSError: pass"';
    assert.deepEqual(await shell.run(`${scribble}; false`), { stdout: '', stderr: '', code: 1 });
    assert.equal(await shell.read('echo alive'), 'alive\n');
    shell.socket.close();
  });

  test('exit, exec and a killed shell end the session, and the session says so', async () => {
    await assertEnds('exit', 0);
    await assertEnds('echo bye; exit 3', 3);
    await assertEnds("exec sh -c 'exit 5'", 5);
    await assertEnds('kill -9 $$', 137);
    await assertEnds('set -e; false; echo never', 1);
    await assertEnds('exit 4 # with what is queued behind it', 4);
  });

  test('queued commands run in order, each under its own id', async () => {
    const shell = await open();
    const ids = Array.from({ length: 20 }, (_, index) =>
      shell.begin(`sleep 0.0${index % 10}; echo ${index}; (exit ${index})`),
    );
    for (const [index, each] of ids.entries())
      assert.deepEqual(await shell.result(each), { stdout: `${index}\n`, stderr: '', code: index });
    const order = shell.frames.filter(({ type }) => type === 'shell_exit').map((frame) => frame.id);
    assert.deepEqual(order, ids);
    shell.socket.close();
  });

  test('ten concurrent sessions are ten shells', async () => {
    const shells = await Promise.all(Array.from({ length: 10 }, async () => open()));
    await Promise.all(shells.map(async (shell, index) => shell.read(`mine=${index}; cd /proc/$$`)));
    const seen = await Promise.all(shells.map(async (shell) => shell.read('echo $mine; pwd')));
    assert.deepEqual(
      seen.map((text) => text.split('\n')[0]),
      shells.map((_, index) => String(index)),
    );
    assert.equal(new Set(seen).size, 10);
    for (const shell of shells) shell.socket.close();
  });

  test('a disconnect ends the shell and its foreground, not its background', async () => {
    const shell = await open();
    await shell.read('sleep 6543 & (: mark; sleep 0)');
    shell.begin('bash -c "sleep 5432; true"');
    await pollUntil(
      { step: 'the command', timeoutMs: TIMEOUT_MS, intervalMs: 50 },
      async () => (await isRunning('sleep 5432')) || undefined,
    );
    const count = async (): Promise<string> => (await shared.api.exec(id, 'pgrep -cx bash')).stdout;
    shell.socket.terminate();
    await waitForEnd('sleep 5432');
    await pollUntil(
      { step: 'the end of bash', timeoutMs: TIMEOUT_MS, intervalMs: 100 },
      async () => (await count()) === '0\n' || undefined,
    );
    assert.equal(await isRunning('sleep 6543'), true);
    await shared.api.exec(id, 'pkill sleep');
  });

  test('an image without bash gets its sh', async () => {
    await withImage('busybox', {}, async (api, busybox) => {
      const shell = await Shell.open(api, busybox);
      await shell.read('cd /tmp; mine=1; f() { echo "f $mine"; }');
      assert.equal(await shell.read('f; pwd'), 'f 1\n/tmp\n');
      assert.equal((await shell.run('echo "open')).code !== 0, true);
      assert.deepEqual(await shell.run('echo a; echo b >&2; exit 9'), {
        stdout: 'a\n',
        stderr: 'b\n',
        code: 9,
      });
      assert.equal((await shell.close()).code, 1000);
    });
  });

  test('an invalid message is answered with its error, and harms no other session', async () => {
    const other = await open();
    const run = { type: 'shell_run', id: 'a', command: 'true' };
    const bad: [string | Buffer, RegExp][] = [
      ['not json', /JSON/u],
      [Buffer.from(JSON.stringify(run)), /text/u],
      [JSON.stringify({ ...run, type: 'shell_walk' }), /type/u],
      [JSON.stringify({ ...run, id: '' }), /id/u],
      [JSON.stringify({ ...run, command: '' }), /command/u],
      [JSON.stringify({ ...run, command: 'a\0b' }), /command/u],
      [JSON.stringify({ ...run, more: 1 }), /more/u],
      ['[]', /./u],
    ];
    for (const [message, words] of bad) {
      const shell = await open();
      shell.socket.send(message);
      assert.equal((await shell.close()).code, 1008, String(message));
      const last = shell.frames.at(-1);
      assert.deepEqual([last?.type, last?.error?.code], ['error', 'invalid_request'], String(message));
      assert.match(last?.data ?? '', words);
    }
    const large = await open();
    large.socket.send('x'.repeat(2 ** 20 + 1));
    assert.equal((await large.close()).code, 1009);
    assert.equal(await other.read('echo alive'), 'alive\n');
    other.socket.close();
  });

  test('the key or a ticket opens a session; without them 401; an unknown sandbox gives 404', async () => {
    const { api } = shared;
    assert.equal(await refusedStatus(api, `${id}/shell`, {}), 401);
    assert.equal(await refusedStatus(api, `${id}/shell?ticket=wrong`, {}), 401);
    assert.equal(await refusedStatus(api, `run${'0'.repeat(20)}/shell`, bearer()), 404);
    const { body } = await api.call('POST', `/v1/runs/${id}/tickets`, { body: {} });
    const path = `${id}/shell?ticket=${String(body['ticket'])}`;
    const socket = await new StreamSocket(api, path, {}).opened();
    socket.socket.close();
    assert.equal(await refusedStatus(api, path, {}), 401);
  });
});
