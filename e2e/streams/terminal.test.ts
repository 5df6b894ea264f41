import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { pushNginxImage } from '../fixtures/images/nginx-image.ts';
import { API_KEY } from '../fixtures/service/service.ts';
import { shared as openShared } from '../fixtures/service/shared.ts';
import { bearer, refusedStatus, StreamSocket } from '../fixtures/streams/stream-socket.ts';
import { Terminal } from '../fixtures/streams/terminal.ts';

const TIMEOUT_MS = 60_000;
const CONTROL_C = '\x03';
const CONTROL_D = '\x04';
const CONTROL_Z = '\x1a';
const ESCAPE = '\x1b';
/** Busybox queries the cursor position from the terminal. */
const PROMPT = new RegExp(`[#$] (?:${ESCAPE}\\[6n)?$`, 'u');

describe('terminals', () => {
  let shared: Awaited<ReturnType<typeof openShared>>;
  let id = '';
  before(async () => {
    shared = await openShared();
    ({ id } = await shared.api.create({ image: BASE_IMAGE, mem_mib: 512, timeout: 0 }));
  });
  after(() => shared.api.destroy(id));

  const open = async (query: Record<string, string> = {}): Promise<Terminal> =>
    Terminal.open(shared.api, id, query);
  const read = async (command: string): Promise<string> => (await shared.api.exec(id, command)).stdout;
  const waitForEnd = async (marker: string): Promise<void> => {
    const command = `pgrep -f '[${marker[0]}]${marker.slice(1)}'`;
    await pollUntil({ step: `the end of ${marker}`, timeoutMs: TIMEOUT_MS, intervalMs: 100 }, async () =>
      (await shared.api.exec(id, command)).exit_code === 0 ? undefined : true,
    );
  };
  const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

  test('a terminal runs bash in the requested size, with colours', async () => {
    const terminal = await open({ cols: '91', rows: '33' });
    await terminal.shows(PROMPT);
    await terminal.ask('stty size', /^33 91\r$/mu);
    await terminal.ask('echo $TERM $(tput colors) $SHLVL ${BASH##*/}', /^xterm-256color 256 1 bash\r$/mu);
    await terminal.ask('tty; shopt login_shell', /^\/dev\/pts\/\d+\r\nlogin_shell\s+off\r$/mu);
    await terminal.ask('ls --color=always -d /tmp', new RegExp(`${ESCAPE}\\[30;42m/tmp${ESCAPE}\\[0m`, 'u'));
    await terminal.ask('pwd; test -t 0 && test -t 1 && test -t 2 && echo "t"ty', /^\/workspace\r\ntty\r$/mu);
    terminal.type('exit 3\r');
    assert.equal(await terminal.exit(), 3);
  });

  test('a resize reaches the running program', async () => {
    const terminal = await open();
    await terminal.shows(PROMPT);
    await terminal.ask('stty size', /^24 80\r$/mu);
    // The trap only notes the signal: bash ignores one that arrives while the previous trap still runs.
    const tell = 'if [ $resized ]; then resized=; echo new size $(stty size); fi';
    const watch = `bash -c 'trap resized=1 WINCH; echo "o"k; while sleep 0.1; do ${tell}; done'`;
    await terminal.ask(watch, /^ok\r$/mu);
    terminal.resize(132, 50);
    await terminal.shows(/^new size 50 132\r$/mu);
    terminal.resize(1000, 1);
    await terminal.shows(/^new size 1 1000\r$/mu);
    const from = terminal.text.length;
    terminal.type(CONTROL_C);
    await terminal.shows(PROMPT, from);
    terminal.type(CONTROL_D);
    assert.equal(await terminal.exit(), 130);
  });

  test('keys stop, continue and interrupt jobs', async () => {
    const terminal = await open();
    await terminal.shows(PROMPT);
    terminal.type('sleep 4000; echo "af"ter\r');
    await pollUntil({ step: 'the sleep', timeoutMs: TIMEOUT_MS, intervalMs: 50 }, async () =>
      (await read("pgrep -f '[s]leep 4000'")) === '' ? undefined : true,
    );
    terminal.type(CONTROL_Z);
    await terminal.shows(/Stopped +sleep 4000/u);
    assert.equal(await read("ps -o stat= -p $(pgrep -f '[s]leep 4000') | cut -c1"), 'T\n');
    await terminal.ask('jobs', /^\[1\]\+ +Stopped/mu);
    const from = terminal.text.length;
    terminal.type('fg\r');
    await terminal.shows(/^sleep 4000/mu, from);
    terminal.type(CONTROL_C);
    await waitForEnd('sleep 4000');
    await terminal.ask('echo code-$?', /^code-130\r$/mu);
    await terminal.ask('echo "b"egin; cat', /^begin\r$/mu);
    await terminal.ask('line', /^line\r\nline\r$/mu);
    terminal.type(CONTROL_D);
    await terminal.ask('echo "d"one $?', /^done 0\r$/mu);
    terminal.type('exit\r');
    assert.equal(await terminal.exit(), 0);
  });

  test('Vim edits a file, also in an image without bash', async () => {
    const { api, registry } = shared;
    const other = await api.create({ image: await pushNginxImage(registry), mem_mib: 256 });
    try {
      const vim = await Terminal.open(api, other.id, { command: 'vim.tiny -u NONE /tmp/text', cols: '60' });
      await vim.shows(/"\/tmp\/text" \[New/u);
      vim.type(`iwritten in Vim${ESCAPE}yyp:s/Vim/it/\r`);
      await vim.shows(/:s\/Vim\/it\//u);
      const from = vim.text.length;
      vim.resize(40, 10);
      await vim.shows(/written in it/u, from);
      vim.type(':wq\r');
      assert.equal(await vim.exit(), 0);
      assert.equal((await api.exec(other.id, 'cat /tmp/text')).stdout, 'written in Vim\nwritten in it\n');
      const sh = await Terminal.open(api, other.id);
      await sh.shows(PROMPT);
      await sh.ask('stty size; echo ${BASH:-no} bash', /^24 80\r\nno bash\r$/mu);
      sh.type('exit 5\r');
      assert.equal(await sh.exit(), 5);
    } finally {
      await api.destroy(other.id);
    }
  });

  test('a full-screen program draws, is resized and quits', async () => {
    const top = await open({ command: 'top -d 0.5' });
    await top.shows(/load average/u);
    const from = top.text.length;
    top.resize(200, 60);
    await top.shows(/load average/u, from);
    top.type('q');
    assert.equal(await top.exit(), 0);
  });

  test('characters that are split over frames arrive complete, in both directions', async () => {
    const terminal = await open({ command: 'stty -echo; echo ready; cat' });
    await terminal.shows(/ready\r\n/u);
    const text = 'äö€😀한\n';
    for (const byte of Buffer.from(text)) terminal.type(Buffer.of(byte));
    terminal.type(CONTROL_D);
    assert.equal(await terminal.exit(), 0);
    assert.equal(terminal.text, `ready\r\n${text.replace('\n', '\r\n')}`);
  });

  test('10 MB of output and 1 MB of input arrive without loss', async () => {
    const output = await open({ command: 'stty -opost; head -c 10000000 /dev/urandom | tee /tmp/out' });
    assert.equal(await output.exit(), 0);
    assert.equal(output.bytes.length, 10_000_000);
    assert.equal(`${sha256(output.bytes)}  -\n`, await read('sha256sum < /tmp/out'));
    const input = await open({ command: 'stty raw -echo; echo ready; head -c 1000000 > /tmp/in' });
    await input.shows(/ready/u);
    const bytes = randomBytes(1_000_000);
    for (let index = 0; index < bytes.length; index += 50_000)
      input.type(bytes.subarray(index, index + 50_000));
    assert.equal(await input.exit(), 0);
    assert.equal(`${sha256(bytes)}  -\n`, await read('sha256sum < /tmp/in'));
  });

  test('a disconnect hangs up the terminal and ends its foreground', async () => {
    const commands = {
      'sleep 7001': `bash -c 'trap "touch /tmp/hung-up; exit" HUP; sleep 7001 & wait'`,
      'sleep 7002': `sh -c 'trap "" HUP; sleep 7002; sleep 7003'`,
    };
    for (const [marker, command] of Object.entries(commands)) {
      const terminal = await open();
      await terminal.shows(PROMPT);
      terminal.type(`${command}\r`);
      await pollUntil({ step: 'the command', timeoutMs: TIMEOUT_MS, intervalMs: 50 }, async () =>
        (await read(`pgrep -f '[s]${marker.slice(1)}$'`)) === '' ? undefined : true,
      );
      terminal.socket.terminate();
      await waitForEnd('sleep 700');
    }
    await pollUntil({ step: 'the end of all shells', timeoutMs: TIMEOUT_MS, intervalMs: 100 }, async () =>
      (await read('pgrep -cx bash')) === '0\n' ? true : undefined,
    );
    assert.equal(await read('ls /tmp/hung-up'), '/tmp/hung-up\n');
  });

  test('the terminal exits with the code of its command, or with its signal', async () => {
    for (const [command, code] of [
      ['exit 7', 7],
      ['kill -9 $$', 137],
      ['absent-program', 127],
      ['printf shown', 0],
    ] as const) {
      const terminal = await open({ command });
      assert.equal(await terminal.exit(), code, command);
      if (code === 0) assert.equal(terminal.text, 'shown');
    }
  });

  test('a token, a header or a ticket opens a terminal; a ticket works once, a wrong one never', async () => {
    const { api, service } = shared;
    const path = `${id}/terminal?command=${encodeURIComponent('echo opened')}`;
    const { body, status, text } = await api.call('POST', `/v1/runs/${id}/tickets`, {
      body: { expires_in: 60 },
    });
    assert.equal(status, 201, text);
    const ticket = String(body['ticket']);
    const ways: [string, Record<string, string>][] = [
      [path, bearer()],
      [`${path}&token=${API_KEY}`, {}],
      [`${path}&ticket=${ticket}`, {}],
    ];
    for (const [way, headers] of ways) {
      const socket = await new StreamSocket(api, way, headers).opened();
      assert.equal((await socket.close()).code, 1000);
      assert.equal(String(Buffer.concat(socket.chunks)), 'opened\r\n');
    }
    const none = `${id}/terminal`;
    for (const way of [none, `${none}?ticket=${ticket}`, `${none}?ticket=x`, `${none}?token=${API_KEY}x`])
      assert.equal(await refusedStatus(api, way, {}), 401, way);
    assert.equal(await refusedStatus(api, `${id}/shell?token=${API_KEY}`, {}), 401);
    assert.equal(await refusedStatus(api, `${id}/exec/ws?token=${API_KEY}`, {}), 401);
    assert.ok(!service.output.includes(API_KEY), 'the key is in the log');
    assert.ok(!service.output.includes(ticket), 'a ticket is in the log');
  });

  test('invalid sizes and messages are refused', async () => {
    for (const query of ['cols=0', 'rows=1001', 'cols=wide', 'colour=red'])
      assert.equal(await refusedStatus(shared.api, `${id}/terminal?${query}`, bearer()), 400, query);
    for (const message of [
      '{',
      '{"type":"resize","cols":0,"rows":5}',
      '{"type":"resize"}',
      '{"type":"shout"}',
    ]) {
      const terminal = await open();
      terminal.socket.send(message);
      assert.equal((await terminal.close()).code, 1008, message);
      assert.equal(terminal.frames.at(-1)?.error?.code, 'invalid_request', message);
    }
  });
});
