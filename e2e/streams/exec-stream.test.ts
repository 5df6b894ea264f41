import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { WebSocket } from 'ws';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import { pollUntil, withDeadline } from '../../packages/server/src/lib/waiting/deadline.ts';
import { API_KEY } from '../fixtures/service/service.ts';
import { shared as openShared } from '../fixtures/service/shared.ts';

type Shared = Awaited<ReturnType<typeof openShared>>;
interface Frame {
  type: string;
  data: string;
  timed_out?: boolean;
  error?: { code: string };
}

const TIMEOUT_MS = 30_000;
const FLOOD_MS = 8000;
const MAX_GROWTH_MIB = 96;
const UPLOAD_BYTES = 48 * 1024 * 1024;
const UPLOAD_TIMEOUT_MS = 120_000;

describe('streamed commands', () => {
  let shared: Shared;
  let id = '';
  before(async () => {
    shared = await openShared();
    ({ id } = await shared.api.create({ image: BASE_IMAGE }));
  });
  after(() => shared.api.destroy(id));

  const path = () => `/v1/runs/${id}/exec`;
  const openStream = (body: Record<string, unknown>, query = '', signal?: AbortSignal) =>
    shared.api.fetch('POST', `${path()}/stream${query}`, {
      body,
      ...(signal === undefined ? {} : { signal }),
    });

  async function stream(body: Record<string, unknown>, query = ''): Promise<Frame[]> {
    const text = await (await openStream(body, query)).text();
    return text
      .split('\n')
      .filter((line) => line.startsWith('data: '))
      .map((line) => JSON.parse(line.slice('data: '.length)) as Frame);
  }

  function openSocket(query = ''): { socket: WebSocket; frames: Frame[]; closed: Promise<number> } {
    const url = `${shared.service.address.replace('http', 'ws')}${path()}/ws${query}`;
    const socket = new WebSocket(url, { headers: { authorization: `Bearer ${API_KEY}` } });
    const frames: Frame[] = [];
    socket.on('message', (data: Buffer) => frames.push(JSON.parse(String(data)) as Frame));
    const closed = Promise.withResolvers<number>();
    socket.on('close', (code) => closed.resolve(code));
    socket.on('error', closed.reject);
    return { socket, frames, closed: closed.promise };
  }

  const isRunning = async (marker: string): Promise<boolean> =>
    (await shared.api.exec(id, `pgrep -f '[${marker[0]}]${marker.slice(1)}'`)).exit_code === 0;

  const joined = (frames: readonly Frame[], type: string): string =>
    frames
      .filter((frame) => frame.type === type)
      .map((frame) => frame.data)
      .join('');

  test('curl sees each line when it is written, with standard output and error apart', async () => {
    const command = 'echo one; sleep 1; echo two >&2; sleep 1; exit 3';
    const args = ['-sN', '-H', `authorization: Bearer ${API_KEY}`, '-H', 'content-type: application/json'];
    const url = `${shared.service.address}${path()}/stream`;
    const curl = spawn('curl', [...args, '-d', JSON.stringify({ command }), url]);
    const seen: [string, number][] = [];
    curl.stdout.setEncoding('utf8');
    curl.stdout.on('data', (text: string) => {
      for (const line of text.split('\n')) if (line !== '') seen.push([line, performance.now()]);
    });
    await once(curl, 'close');
    assert.deepEqual(
      seen.map(([line]) => line),
      [
        'data: {"type":"stdout","data":"one\\n"}',
        'data: {"type":"stderr","data":"two\\n"}',
        'data: {"type":"exit","data":"3","timed_out":false}',
      ],
    );
    const [first, second] = seen.map(([, at]) => at);
    assert.ok((second ?? 0) - (first ?? 0) > 500, 'lines came together');
  });

  test('output is complete: 10 MB, and multi-byte characters', async () => {
    const frames = await stream({ command: 'head -c 10000000 /dev/zero | tr "\\0" x' });
    assert.equal(joined(frames, 'stdout').length, 10_000_000);
    const utf8 = await stream({ command: "python3 -c \"print('äö€😀' * 50000, end='')\"" });
    assert.equal(joined(utf8, 'stdout'), 'äö€😀'.repeat(50_000));
    const exact = await stream(
      { command: 'head -c 300000 /dev/urandom | tee /tmp/bytes' },
      '?encoding=base64',
    );
    const bytes = Buffer.concat(
      exact.filter((frame) => frame.type === 'stdout').map((frame) => Buffer.from(frame.data, 'base64')),
    );
    const { stdout } = await shared.api.exec(id, 'sha256sum < /tmp/bytes | cut -d" " -f1');
    assert.equal(createHash('sha256').update(bytes).digest('hex'), stdout.trim());
  });

  test('a timeout ends the process group with exit code 124', async () => {
    const frames = await stream({ command: 'echo on; sleep 987 & sleep 987', timeout: 1 });
    assert.deepEqual(frames.at(-1), { type: 'exit', data: '124', timed_out: true });
    assert.equal(await isRunning('sleep 987'), false);
  });

  test('a disconnect of the client ends the process group', async () => {
    const abort = new AbortController();
    const response = await openStream(
      { command: 'echo on; sleep 876 & sleep 876', timeout: 600 },
      '',
      abort.signal,
    );
    await response.body?.getReader().read();
    assert.equal(await isRunning('sleep 876'), true);
    abort.abort();
    await pollUntil({ step: 'end of the group', timeoutMs: TIMEOUT_MS, intervalMs: 100 }, async () =>
      (await isRunning('sleep 876')) ? undefined : true,
    );
  });

  test('a client that stops reading stops the process, and the service uses little memory', async () => {
    const roles = (['control', 'runner'] as const).map((role) => shared.service.rolePid(role));
    const residentMiB = (): number[] =>
      roles.map(
        (pid) => Number(/VmRSS:\s+(\d+)/u.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024,
      );
    const before = residentMiB();
    const response = await openStream({ command: 'yes no end; true', timeout: 120 });
    const reader = response.body?.getReader();
    await reader?.read();
    await delay(FLOOD_MS);
    const grown = residentMiB().map((now, index) => now - (before[index] ?? 0));
    assert.ok(Math.max(...grown) < MAX_GROWTH_MIB, `grew by ${grown.join(', ')} MiB`);
    const state = await shared.api.exec(id, 'ps -o stat=,wchan= -C yes');
    assert.match(state.stdout, /^S/u, 'the command still runs');
    await reader?.cancel();
    await pollUntil({ step: 'end of yes', timeoutMs: TIMEOUT_MS, intervalMs: 100 }, async () =>
      (await isRunning('yes no end')) ? undefined : true,
    );
  });

  test('concurrent output and uploads do not block each other', async () => {
    const abort = new AbortController();
    const floods = Array.from({ length: 3 }, async () => {
      const command = 'exec cat /dev/zero';
      const response = await openStream({ command, timeout: 600 }, '?encoding=base64', abort.signal);
      let bytes = 0;
      for await (const chunk of response.body!) bytes += chunk.length;
      return bytes;
    });
    const raw = randomBytes(UPLOAD_BYTES);
    const uploads = ['a', 'b', 'c'].map((name) =>
      shared.api.call('POST', `/v1/runs/${id}/files/upload?path=/tmp/${name}`, { raw }),
    );
    const answers = await withDeadline('the uploads', UPLOAD_TIMEOUT_MS, Promise.all(uploads));
    assert.deepEqual(
      answers.map(({ status }) => status),
      [200, 200, 200],
    );
    abort.abort();
    for (const flood of await Promise.allSettled(floods))
      assert.equal(String((flood as PromiseRejectedResult).reason?.name), 'AbortError');
    const { stdout } = await shared.api.exec(id, 'sha256sum /tmp/[abc] | cut -d" " -f1 | uniq');
    assert.equal(stdout.trim(), createHash('sha256').update(raw).digest('hex'));
  });

  test('over a WebSocket a command reads input as it is sent, and end of file', async () => {
    const { socket, frames, closed } = openSocket();
    await once(socket, 'open');
    socket.send(JSON.stringify({ command: 'while read -r line; do echo "<$line>"; done; echo end' }));
    for (const line of ['a', 'b']) {
      socket.send(JSON.stringify({ type: 'stdin', data: `${line}\n` }));
      await pollUntil({ step: `echo of ${line}`, timeoutMs: TIMEOUT_MS, intervalMs: 5 }, () =>
        joined(frames, 'stdout').includes(`<${line}>`) ? true : undefined,
      );
    }
    socket.send(JSON.stringify({ type: 'stdin_eof' }));
    assert.equal(await closed, 1000);
    assert.equal(joined(frames, 'stdout'), '<a>\n<b>\nend\n');
    assert.deepEqual(frames.at(-1), { type: 'exit', data: '0', timed_out: false });
  });

  test('a signal reaches the command, which may handle it or die from it', async () => {
    const { socket, frames, closed } = openSocket(
      `?command=${encodeURIComponent('trap "echo caught; exit 9" INT; echo ready; while :; do sleep 0.1; done')}`,
    );
    await pollUntil({ step: 'the trap', timeoutMs: TIMEOUT_MS, intervalMs: 5 }, () =>
      joined(frames, 'stdout').includes('ready') ? true : undefined,
    );
    socket.send(JSON.stringify({ type: 'signal', signal: 'SIGINT' }));
    assert.equal(await closed, 1000);
    assert.equal(joined(frames, 'stdout'), 'ready\ncaught\n');
    assert.equal(frames.at(-1)?.data, '9');
    const killed = openSocket(`?command=${encodeURIComponent('sleep 100')}`);
    await once(killed.socket, 'open');
    killed.socket.send(JSON.stringify({ type: 'signal', signal: 'KILL' }));
    assert.equal(await killed.closed, 1000);
    assert.equal(killed.frames.at(-1)?.data, String(128 + 9));
  });

  test('streams end with an error when the runner dies, and the command continues', async () => {
    const response = await openStream({
      command: 'echo on; sleep 20; echo done > /tmp/went-on',
      timeout: 600,
    });
    const text = response.text();
    await shared.service.killRole('runner');
    const last = (await text).trim().split('\n').at(-1) ?? '';
    assert.equal((JSON.parse(last.slice('data: '.length)) as Frame).error?.code, 'unavailable');
    assert.equal((await shared.api.exec(id, 'true')).exit_code, 0);
    await pollUntil({ step: 'the end of the command', timeoutMs: TIMEOUT_MS, intervalMs: 500 }, async () =>
      (await shared.api.exec(id, 'cat /tmp/went-on')).stdout === 'done\n' ? true : undefined,
    );
  });
});
