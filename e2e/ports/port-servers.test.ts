/** Common servers and their traffic: files, streams, large transfers, many requests at once. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { PassThrough, Readable } from 'node:stream';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import fc from 'fast-check';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import { DeadlineError, pollUntil, withDeadline } from '../../packages/server/src/lib/waiting/deadline.ts';
import { hostileAnswer } from '../../packages/server/src/control/testing/fakes/hostile-answers.ts';
import { startGoServer } from '../fixtures/ports/go-server.ts';
import { GuestPort, startInBackground } from '../fixtures/ports/guest-port.ts';
import { startHostileServer } from '../fixtures/ports/hostile-server.ts';
import { NGINX_PORT, pushNginxImage } from '../fixtures/images/nginx-image.ts';
import { addOrganization } from '../fixtures/accounts/organization.ts';
import { RoleMemory } from '../fixtures/service/role-memory.ts';
import { API_KEY } from '../fixtures/service/service.ts';
import { shared as openShared } from '../fixtures/service/shared.ts';
import { StreamSocket } from '../fixtures/streams/stream-socket.ts';
import { IS_LONG } from '../fixtures/test-size.ts';

const TIMEOUT_MS = 60_000;
const MIB = 2 ** 20;
/** Each is more than the service's memory may grow by. */
const [DOWNLOAD_MIB, UPLOAD_MIB] = IS_LONG ? [1024, 256] : [192, 160];
const DOWNLOAD_BYTES = DOWNLOAD_MIB * MIB;
const UPLOAD_BYTES = UPLOAD_MIB * MIB;
const TRANSFER_TIMEOUT_MS = 300_000;
const MAX_GROWTH_MIB = 150;
const IDLE_S = 2;
const GO_PORT = 9000;
const HOSTILE_PORT = 6666;
const ANSWERS = 150;
const SEED = 6667;
/** Listens on the guest's loopback interface, accepts connections and sends nothing. */
const SILENT = `python3 -c '
import socket
server = socket.create_server(("127.0.0.1", 4000))
clients = []
while True: clients.append(server.accept())
'`;

/** Phrases that Node's parser accepts and its writer refuses. */
const WORST_ANSWERS = ['200 \u0001', '404 O\u001b[2JK', '500 \u007f', '101 \u0007'].map((line) => ({
  pieces: [`HTTP/1.1 ${line}\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 0\r\n\r\n`],
  isReset: false,
}));

async function takeUpgrade(guest: GuestPort, path: string): Promise<void> {
  const socket = await guest.openUpgrade(path, 'x');
  socket.on('error', () => undefined).resume();
  await withDeadline('the end of the upgrade', TIMEOUT_MS, once(socket, 'close'), () => socket.destroy());
}

function assertNoTimeout(error: unknown): void {
  if (error instanceof DeadlineError) throw error;
}

describe('servers in sandboxes', () => {
  let shared: Awaited<ReturnType<typeof openShared>>;
  let id = '';
  let go: GuestPort;
  before(async () => {
    shared = await openShared();
    const { api } = shared;
    // One processor for the server and one for the agent, if they are emulated.
    ({ id } = await api.create({ image: BASE_IMAGE, mem_mib: 512, vcpus: 2 }));
    go = await startGoServer(api, id, GO_PORT);
  });
  after(() => shared.api.destroy(id));

  test("Python's server: answers that end with the connection, files, directories", async () => {
    await shared.api.exec(id, 'mkdir -p /srv/files/a; seq 100000 > /srv/files/a/numbers');
    const command = 'python3 -m http.server 8000 --bind 127.0.0.1 --directory /srv/files';
    await startInBackground(shared.api, id, 'python', command);
    const python = new GuestPort(shared.api, id, 8000);
    await python.waitUntilServing();
    assert.match(await python.get('/a/'), /numbers/u);
    assert.equal((await python.get('/a/numbers')).length, 588_895);
    const moved = await python.call({ path: '/a' });
    assert.deepEqual([moved.status, moved.headers['location']], [301, '/a/']);
    const head = await python.call({ method: 'HEAD', path: '/a/numbers' });
    assert.deepEqual([head.headers['content-length'], head.body.length], ['588895', 0]);
    assert.equal((await python.call({ path: '/absent' })).status, 404);
  });

  test("Go's server: on ::1 only, both directions at once, trailers, an upgrade to a custom protocol", async () => {
    const body = new PassThrough();
    body.write('one');
    const response = await go.open({
      method: 'REPORT',
      path: '/a%2fb?c',
      headers: { trailer: 'X-Sent' },
      body,
      trailers: { 'X-Sent': 'all' },
    });
    const chunks = response.setEncoding('utf8')[Symbol.asyncIterator]();
    const { host } = new URL(shared.service.address);
    let seen = '';
    const read = async (until: string): Promise<void> => {
      while (!seen.includes(until)) seen += String((await chunks.next()).value);
    };
    await withDeadline('the first line', TIMEOUT_MS, read('one'));
    assert.equal(seen, `REPORT /a%2fb?c localhost:${GO_PORT} ${host}\none`);
    body.end('two');
    await withDeadline('the echo', TIMEOUT_MS, read('two'));
    assert.equal((await chunks.next()).done, true);
    assert.deepEqual(response.trailers, { 'x-read': '6 all' });
    const lines = await go.openUpgrade('/hijack', 'lines');
    lines.write('a line\n');
    const [echo] = (await withDeadline('the echo', TIMEOUT_MS, once(lines, 'data'))) as [Buffer];
    assert.equal(String(echo), 'a line\n');
    lines.destroy();
  });

  test('curl asks before a large upload, and then sends it', async () => {
    const { stdout } = await promisify(execFile)('sh', [
      '-c',
      `head -c 3000000 /dev/zero | curl -sS -H 'authorization: Bearer ${API_KEY}' -H 'expect: 100-continue' --data-binary @- '${go.url}/count'`,
    ]);
    assert.equal(stdout, '3000000');
  });

  test(`${DOWNLOAD_MIB} MiB pass, and the service uses little memory`, async (context) => {
    const memory = new RoleMemory(shared.service);
    const startedAt = performance.now();
    const response = await go.open({ path: `/bytes?size=${DOWNLOAD_BYTES}` });
    let received = 0;
    response.on('data', (chunk: Buffer) => (received += chunk.length));
    await withDeadline('the download', TRANSFER_TIMEOUT_MS, once(response, 'end'));
    assert.equal(received, DOWNLOAD_BYTES);
    const downloadMs = performance.now() - startedAt;
    const chunk = Buffer.alloc(MIB / 4);
    const body = Readable.from(Array.from({ length: UPLOAD_BYTES / chunk.length }, () => chunk));
    const upload = go.call({ method: 'POST', path: '/count', body });
    const { text } = await withDeadline('the upload', TRANSFER_TIMEOUT_MS, upload);
    assert.equal(Number(text), UPLOAD_BYTES);
    const uploadMs = performance.now() - startedAt - downloadMs;
    const { text: growth, maxMiB } = memory.growth();
    const rate = (bytes: number, elapsedMs: number): string => `${Math.round(bytes / elapsedMs / 1000)} MB/s`;
    const rates = `down ${rate(DOWNLOAD_BYTES, downloadMs)}, up ${rate(UPLOAD_BYTES, uploadMs)}`;
    context.diagnostic(`${rates}; grew by ${growth}`);
    assert.ok(maxMiB < MAX_GROWTH_MIB, `grew by ${growth}`);
  });

  test('a server that is killed during an answer breaks the transfer', async () => {
    const response = await go.open({ method: 'POST', path: '/', body: new PassThrough() });
    assert.equal(response.statusCode, 200);
    // Listens before the cut: an answer that has ended already does not report how.
    const rest = response.toArray();
    const cut = assert.rejects(withDeadline('the end', TIMEOUT_MS, rest), { code: 'ECONNRESET' });
    await shared.api.exec(id, 'pkill -KILL go-server');
    await cut;
    const gone = await go.call({ path: '/' });
    assert.equal(gone.status, 502);
    assert.match(gone.text, /"port_unreachable"/u);
  });

  test('a server with arbitrary answers harms neither control nor the shell of another tenant', async () => {
    const { api, service } = shared;
    const key = await addOrganization(service);
    const other = await api.call('POST', '/v1/runs', { key, body: { image: BASE_IMAGE, mem_mib: 256 } });
    const bystander = String(other.body['id']);
    const shell = await new StreamSocket(api, `${bystander}/shell`, {
      authorization: `Bearer ${key}`,
    }).opened();
    const controlPid = service.rolePid('control');
    const answers = [...WORST_ANSWERS, ...fc.sample(hostileAnswer, { seed: SEED, numRuns: ANSWERS })];
    const hostile = await startHostileServer(api, { id, port: HOSTILE_PORT, answers });
    for (const index of answers.keys()) {
      const path = `/${index}`;
      const isUpgrade = index % 3 === 0;
      // The answer may be complete, aborted or refused: it only must end.
      await (isUpgrade ? takeUpgrade(hostile, path) : hostile.call({ path })).catch(assertNoTimeout);
    }
    assert.equal(service.rolePid('control'), controlPid);
    shell.send({ type: 'shell_run', id: 'after', command: 'echo still here' });
    await shell.waitFor('the echo', () => shell.frames.find(({ data }) => data === 'still here\n'));
    shell.socket.terminate();
    assert.equal((await api.call('DELETE', `/v1/runs/${bystander}`, { key })).status, 200);
  });

  test('nginx answers many concurrent requests without an error', async () => {
    const { api, registry } = shared;
    const nginx = await api.create({ image: await pushNginxImage(registry), mem_mib: 256 });
    try {
      await api.exec(nginx.id, 'nginx');
      const guest = new GuestPort(api, nginx.id, NGINX_PORT);
      await guest.waitUntilServing();
      const args = ['-t1', '-c8', '-d5s', '--timeout', '10s', '-H', `authorization: Bearer ${API_KEY}`];
      const { stdout } = await promisify(execFile)('wrk', [...args, `${guest.url}/`], {
        timeout: TIMEOUT_MS,
      });
      assert.ok(Number(/^\s*(\d+) requests in /mu.exec(stdout)?.[1]) > 100, stdout);
      assert.doesNotMatch(stdout, /Socket errors|Non-2xx/u);
    } finally {
      await api.destroy(nginx.id);
    }
  });

  test('a sandbox is not idle while a connection to a port is open', async () => {
    const { api } = shared;
    const idle = await api.create({ image: BASE_IMAGE, mem_mib: 256, timeout: IDLE_S });
    await startInBackground(api, idle.id, 'silent', SILENT);
    const abort = new AbortController();
    const guest = new GuestPort(api, idle.id, 4000);
    await pollUntil({ step: 'the server', timeoutMs: TIMEOUT_MS, intervalMs: 50 }, async () =>
      (await api.exec(idle.id, 'ss -Hltn sport = :4000')).stdout === '' ? undefined : true,
    );
    const request = guest.open({ path: '/', signal: abort.signal });
    request.catch(() => undefined);
    const isListed = async (): Promise<boolean> =>
      ((await api.call('GET', '/v1/runs')).body as unknown as { id: string }[]).some(
        (run) => run.id === idle.id,
      );
    await delay(3 * IDLE_S * 1000);
    assert.equal(await isListed(), true);
    abort.abort();
    await assert.rejects(request, { name: 'AbortError' });
    await pollUntil({ step: 'the end', timeoutMs: TIMEOUT_MS, intervalMs: 100 }, async () =>
      (await isListed()) ? undefined : true,
    );
  });
});
