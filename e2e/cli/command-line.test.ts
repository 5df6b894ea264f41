/** The command line of users, as published, against a real service and real sandboxes. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, readFileSync, statSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { PublishedCli, shows } from '../fixtures/cli/published-cli.ts';
import { API_KEY } from '../fixtures/service/service.ts';
import { shared } from '../fixtures/service/shared.ts';

const TIMEOUT_MS = 60_000;
/** Node.js itself takes half of it. */
const MAX_RSS_KIB = 150_000;
const IMAGE = 'coppice/base:1';

describe('the command line', () => {
  let cli: PublishedCli;
  let address = '';
  let id = '';
  before(async () => {
    ({ address } = (await shared()).service);
    cli = new PublishedCli();
  });
  after(async () => {
    if (id !== '') await cli.run(['rm', id]);
    cli[Symbol.dispose]();
  });

  const waitFor = (what: string, look: () => unknown): Promise<unknown> =>
    pollUntil({ step: what, timeoutMs: TIMEOUT_MS, intervalMs: 50 }, async () => (await look()) || undefined);
  /** Waits until no process in the sandbox has this command line. */
  const waitForEnd = (pattern: string): Promise<unknown> =>
    waitFor(`the end of ${pattern}`, async () => {
      const { code } = await cli.run(['exec', id, '--', 'pgrep', '-f', `[${pattern[0]}]${pattern.slice(1)}`]);
      return code === 1;
    });

  /** Starts a script in the sandbox, and waits until it has printed "ready". */
  const startReady = async (script: string) => {
    const running = cli.start('exec', id, '--', 'sh', '-c', script);
    await shows(running, /ready/u);
    return running;
  };

  test('without a service it says what to do, in one line', async () => {
    const { code, stdout, stderr } = await cli.run([]);
    assert.deepEqual([code, stdout], [2, '']);
    assert.match(stderr, /^coppice: run "coppice login" .*\n$/u);
    const listed = await cli.run(['ls']);
    assert.deepEqual([listed.code, listed.stdout], [1, '']);
    assert.match(
      listed.stderr,
      /^coppice: there is no key yet: run "coppice login", or set SANDBOX_API_KEY\n$/u,
    );
  });

  test('a wrong key is refused and not stored', async () => {
    const wrong = `${API_KEY.slice(0, -4)}0000`;
    const { code, stderr } = await cli.run(['login', '--url', address, '--key-stdin'], wrong);
    assert.equal(code, 1);
    assert.match(stderr, /does not accept this key/u);
    assert.ok(!stderr.includes(wrong));
    assert.throws(() => statSync(cli.config), { code: 'ENOENT' });
  });

  test('login asks for the key on a terminal, shows it nowhere, and stores it for its owner alone', async () => {
    const running = cli.startOnTerminal(`coppice login --url ${address}; stty -a`);
    await shows(running, /API key for http/u);
    running.child.stdin.write(`${API_KEY}x\u007f\r`);
    const { stdout } = await running.result();
    assert.match(stdout, /Logged in to http.* as profile "default"/u);
    assert.match(stdout, / echo /u, 'the terminal echoes again');
    assert.ok(!stdout.includes(API_KEY.slice(-8)));
    assert.equal(statSync(cli.config).mode & 0o777, 0o600);
    assert.ok(readFileSync(cli.config, 'utf8').includes(API_KEY));
  });

  test('create prints an id, and ls and get show the sandbox, also by the beginning of its id', async () => {
    id = await cli.read('create', '--mem', '256m', '--timeout', '0', '--label', 'job=cli', IMAGE);
    assert.match(id, /^run[0-9a-z]{20}$/u);
    assert.match(
      await cli.read('ls', '--label', 'job=cli'),
      new RegExp(`^ID .*\\n${id} +running +coppice/base:1 +1 +256 MiB`, 'u'),
    );
    const [record] = JSON.parse(await cli.read('ls', '--json', '--label', 'job=cli')) as {
      id: string;
      memMiB: number;
    }[];
    assert.deepEqual([record?.id, record?.memMiB], [id, 256]);
    const shown = JSON.parse(await cli.read('get', id.slice(0, 12), '--json')) as { id: string };
    assert.equal(shown.id, id);
  });

  test('exec passes input, both outputs, arguments and the exit code', async () => {
    const script = 'cat; echo "$1" >&2; exit 7';
    const { code, stdout, stderr } = await cli.run(
      ['exec', id, '--', 'sh', '-c', script, 'sh', "a 'b' $c"],
      'é in\n',
    );
    assert.deepEqual([code, stdout, stderr], [7, 'é in\n', "a 'b' $c\n"]);
    assert.equal(await cli.read('exec', id, '--', 'echo $((6 * 7)) | cat'), '42');
    const missing = await cli.run(['exec', id, '--', 'no-such-program', 'x']);
    assert.equal(missing.code, 127);
    const limited = await cli.run(['exec', '--time-limit', '1', id, '--', 'sleep', '60']);
    assert.equal(limited.code, 124);
  });

  test('failures of the command line itself exit with 125 for exec, and name the remedy', async () => {
    const absent = await cli.run(['exec', 'run00000000000000000000', '--', 'true']);
    assert.equal(absent.code, 125);
    assert.match(absent.stderr, /^coppice: there is no sandbox run0{20}: "coppice ls" lists yours\n$/u);
    const wrong = await cli.run(['exec', id, '--nope', '--', 'true']);
    assert.equal(wrong.code, 125);
    const usage = await cli.run(['create', '--mem', 'much', IMAGE]);
    assert.equal(usage.code, 2);
    assert.match(usage.stderr, /--mem <size>.*Expected a size such as 512m or 2g/u);
    const refused = await cli.run(['create', 'debian']);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /^coppice: .*tag/u);
    const elsewhere = await cli.run(['--url', 'http://127.0.0.1:9', 'ls']);
    assert.equal(elsewhere.code, 1);
    assert.match(elsewhere.stderr, /there is no key for http:\/\/127\.0\.0\.1:9: run "coppice login --url/u);
  });

  test('Ctrl-C interrupts the command, which may end in its own way', async () => {
    const running = await startReady(
      'trap "echo caught; exit 5" INT; echo ready; while :; do sleep 0.1; done',
    );
    running.child.kill('SIGINT');
    const { code, stdout } = await running.result();
    assert.deepEqual([code, stdout], [5, 'ready\ncaught\n']);
  });

  test('a second Ctrl-C kills a command that ignores the first', async () => {
    const running = await startReady('trap "echo ignored" INT; echo ready; while :; do sleep 0.2; done');
    running.child.kill('SIGINT');
    await shows(running, /ignored/u);
    running.child.kill('SIGINT');
    assert.equal((await running.result()).code, 137);
    await waitForEnd('trap "echo ignored');
  });

  test('it kills the command when it is terminated, or when the reader of its output leaves', async () => {
    const running = await startReady('echo ready; exec sleep 7654');
    running.child.kill('SIGTERM');
    assert.equal((await running.result()).code, 143);
    await waitForEnd('sleep 7654');
    const head = cli.startOnTerminal(
      `coppice exec ${id} -- yes piped | head -n 1; echo codes \${PIPESTATUS[@]}`,
    );
    const { stdout } = await head.result();
    assert.equal(stdout.replaceAll('\r', ''), 'piped\ncodes 141 0\n');
    await waitForEnd('yes piped');
  });

  test('a slow reader makes the command wait', async () => {
    const running = cli.start('exec', id, '--', 'yes', 'flood');
    running.child.stdout.pause();
    const written = async (): Promise<number> => {
      const { stdout } = await cli.run(['exec', id, '--', 'cat /proc/$(pgrep -x yes)/io']);
      return Number(/^wchar: (\d+)/mu.exec(stdout)?.[1] ?? 0);
    };
    let before = 0;
    await waitFor('the command to wait', async () => {
      const now = await written();
      const isStill = now > 0 && now === before;
      before = now;
      return isStill;
    });
    const status = readFileSync(`/proc/${running.child.pid}/status`, 'utf8');
    assert.ok(Number(/^VmRSS:\s+(\d+) kB/mu.exec(status)?.[1]) < MAX_RSS_KIB);
    running.child.kill('SIGTERM');
    running.child.stdout.resume();
    await running.result();
  });

  test('a shell has the size of the terminal, passes on the exit code, and restores the terminal', async () => {
    const running = cli.startOnTerminal(`stty cols 91 rows 33; coppice shell ${id}; echo code=$?; stty -a`);
    await shows(running, /[#$] $/u);
    running.child.stdin.write('stty size\r');
    await shows(running, /^33 91\r.*[#$] $/msu);
    running.child.stdin.write('sleep 600\r');
    await waitFor('the command in front of the terminal', async () => {
      const { code } = await cli.run(['exec', id, '--', 'pgrep', '-x', 'sleep']);
      return code === 0;
    });
    running.child.stdin.write('\u0003');
    await shows(running, /\^C.*[#$] $/su);
    running.child.stdin.write('exit 9\r');
    const { stdout } = await running.result();
    assert.match(stdout, /code=9\r/u);
    assert.match(stdout, / icanon .* echo /su);
  });

  test('a terminated shell restores the terminal, too, and a resize reaches the program', async () => {
    const running = cli.startOnTerminal(`coppice shell ${id}; echo code=$?; stty -a`);
    await shows(running, /[#$] $/u);
    const pattern = `^\\S*node \\S*coppice shell ${id}$`;
    const pid = Number(execFileSync('pgrep', ['-f', pattern], { encoding: 'utf8' }));
    execFileSync('stty', ['-F', `/proc/${pid}/fd/0`, 'cols', '120', 'rows', '50']);
    // What is typed may reach the program before the signal of the terminal does.
    await waitFor('the new size in the guest', async () => {
      const shown = running.stdout.length;
      running.child.stdin.write('stty size\r');
      await waitFor('a size', () => /^\d+ \d+\r$/mu.test(running.stdout.slice(shown)));
      return /^50 120\r$/mu.test(running.stdout.slice(shown));
    });
    process.kill(pid, 'SIGTERM');
    const { stdout } = await running.result();
    assert.match(stdout, /code=143\r/u);
    assert.match(stdout, / icanon .* echo /su);
  });

  test('run creates a sandbox, passes on the exit code and destroys the sandbox, also after an interrupt and without a reader', async () => {
    const options = ['run', '--mem', '256m', '--label', 'job=cli-run'];
    const { code, stdout } = await cli.run([...options, IMAGE, '--', 'sh', '-c', 'echo ran; exit 3']);
    assert.deepEqual([code, stdout], [3, 'ran\n']);
    // dash loses an interrupt that arrives while it starts a program.
    const script = 'echo ready; while :; do sleep 0.1; done';
    const running = cli.start(...options, IMAGE, '--', 'sh', '-c', script);
    await shows(running, /ready/u);
    running.child.kill('SIGINT');
    assert.equal((await running.result()).code, 130);
    const head = cli.startOnTerminal(
      `coppice ${options.join(' ')} ${IMAGE} -- yes piped | head -n 1; echo codes \${PIPESTATUS[@]}`,
    );
    assert.match((await head.result()).stdout, /piped\r\n.*codes 141 0/su);
    assert.equal(await cli.read('ls', '-q', '--label', 'job=cli-run'), '');
  });

  test('the key is in no argument and no output of a process', async () => {
    const running = cli.start('exec', id, '--', 'sh', '-c', 'echo ready; sleep 60');
    await shows(running, /ready/u);
    assert.ok(!execFileSync('ps', ['axww', '-o', 'args'], { encoding: 'utf8' }).includes(API_KEY));
    running.child.kill('SIGTERM');
    await running.result();
    for (const args of [['profiles'], ['profiles', '--json'], ['get', id, '--json'], ['login', '--help']])
      assert.ok(!(await cli.read(...args)).includes(API_KEY));
  });

  test('a file with keys that others may read is refused', async () => {
    chmodSync(cli.config, 0o640);
    const { code, stderr } = await cli.run(['ls']);
    chmodSync(cli.config, 0o600);
    assert.equal(code, 1);
    assert.match(stderr, /other users may read it: run chmod 600 /u);
  });

  test('the completion offers commands, options and the ids of sandboxes', async () => {
    const complete = (...words: string[]): Promise<string> => cli.read('complete', '--', ...words);
    assert.equal(await complete('cre'), 'create');
    assert.equal(await complete('exec', '--tim'), '--time-limit');
    assert.ok((await complete('exec', 'run')).split('\n').includes(id));
    assert.equal(await complete('use', ''), 'default');
    const script = `source <(coppice completion bash); COMP_WORDS=(coppice disks sna); COMP_CWORD=2; _coppice; echo "\${COMPREPLY[*]}"`;
    const { stdout } = await cli.startOnTerminal(script).result();
    assert.deepEqual(stdout.trim().split(/\s+/u), ['snapshot', 'snapshots']);
  });

  test('the operator’s commands say where they run', async () => {
    const { code, stderr } = await cli.run(['admin', 'doctor']);
    assert.equal(code, 1);
    assert.match(stderr, /run on the server/u);
  });

  test('rm destroys, and logout forgets the key', async () => {
    const gone = id;
    assert.match(await cli.read('rm', gone), new RegExp(`^${gone} destroyed after .* USD$`, 'u'));
    id = '';
    const again = await cli.run(['rm', gone]);
    assert.equal(again.code, 1);
    await cli.read('logout');
    assert.ok(!readFileSync(cli.config, 'utf8').includes(API_KEY));
    assert.equal((await cli.run(['ls'])).code, 1);
  });
});
