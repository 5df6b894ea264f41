/** Raw requests, with a key, a session or nothing: none gets a status of 500 or above, and control keeps serving. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { FRAME } from '../../lib/protocol/frames.ts';
import type { PreparedImage } from '../../lib/protocol/runner-protocol.ts';
import { AccountClient, PASSWORD } from '../testing/requests/account-client.ts';
import { Bystander } from '../testing/bystander.ts';
import { API_KEY, INVITATION, startSpawnedHarness, waitFor } from '../testing/control-harness.ts';
import { rawFrames } from '../testing/requests/raw-frames.ts';
import {
  listWithOneWrong,
  rawRequest,
  type ApiDocument,
  type Attacked,
} from '../testing/requests/raw-requests.ts';

const RUNS = 2000;
const SEED = 8008;
/** A busy machine tries fewer requests. */
const FUZZ_MS = 90_000;
/** Timeouts for the first byte, on a busy machine, and then for each next byte, of answers that do not end. */
const ANSWER_MS = 5_000;
const QUIET_MS = 100;
/** Deadline of requests whose body does not arrive. */
const BODY_MS = 300;
const DOCUMENT = new URL('../../../../../docs/reference/openapi.json', import.meta.url);

const PREPARED: PreparedImage = {
  image: 'registry.test/a:1@sha256:0',
  digest: 'sha256:0',
  size_bytes: 1,
  prepared_at: '2026-11-23T00:00:00.000Z',
  status: 'ready',
  shapes: [],
};

let harness: Awaited<ReturnType<typeof startSpawnedHarness>>;
let bystander: Bystander;
let attacked: Attacked;
let id = '';
before(async () => {
  harness = await startSpawnedHarness({
    bodyDeadlineMs: BODY_MS,
    requestsPerSecond: 0,
    wrongKeysPerMinute: 1_000_000,
    sandboxesPerOrganization: 100_000,
  });
  harness.runner.files.contents.set('/a', Buffer.from('hello'));
  harness.runner.progress = [{ type: 'done', image: PREPARED }];
  bystander = await Bystander.open(harness);
  ({ id } = await harness.create());
  attacked = await prepareAttack();
});
after(() => harness[Symbol.asyncDispose]());

/** Sends bytes, and returns the whole answer. Each character of both texts is a byte. */
async function exchange(bytes: string): Promise<string> {
  const { hostname, port } = new URL(harness.address);
  const socket = connect(Number(port), hostname);
  const closed = Promise.withResolvers<void>();
  let heard = '';
  socket.setTimeout(ANSWER_MS, () => socket.destroy());
  socket.on('error', () => undefined);
  socket.on('data', (chunk) => {
    heard += chunk.toString('latin1');
    socket.setTimeout(QUIET_MS);
  });
  socket.once('close', () => closed.resolve());
  socket.write(Buffer.from(bytes, 'latin1'));
  await closed.promise;
  return heard;
}

const statusesOf = (heard: string): number[] =>
  [...heard.matchAll(/(?:^|\n|\})HTTP\/1\.1 (\d{3}) /gu)].map(([, status]) => Number(status));

interface LogLine {
  level: number;
  status?: number;
  route?: string;
  msg: string;
}

const WARNING = 40;
/** Nothing listens on the guest's port: the only failure of these requests that is not the client's mistake. */
const isPortAbsent = ({ status, route = '' }: LogLine): boolean =>
  status === 502 && route.startsWith('/v1/runs/:id/proxy/');

/** Paths that would end the session that the others use. */
const LAST = new Set(['/account/sign-out', '/account/password']);

async function prepareAttack(): Promise<Attacked> {
  const document = JSON.parse(await readFile(DOCUMENT, 'utf8')) as ApiDocument;
  for (const path of LAST) delete document.paths[path];
  const person = await AccountClient.signUp(harness, { invitation: INVITATION });
  const key = await person.call('POST', `${person.team}/keys`, { name: 'mine' });
  const session = [`Origin: ${harness.address}`, `Cookie: ${person.cookie}`];
  return {
    document,
    host: new URL(harness.address).host,
    credentials: { key: [`Authorization: Bearer ${API_KEY}`], session },
    known: {
      get id() {
        return id;
      },
      port: '6667',
      organization: person.organizationId,
      team: person.teamId,
      member: person.id,
      key: key.body.id,
      registry: 'ghcr.io',
      month: '2026-10',
      path: '/a',
      limit: '5',
      cursor: 'x',
      label: 'a:b',
      after: '0',
      from: '2026-10-01T00:00:00Z',
      to: '2026-10-02T00:00:00Z',
      run_id: 'x',
      cwd: '/',
      user: 'root',
      command: 'true',
      image: 'node:22-slim',
      timeout: 60,
      labels: { a: 'b' },
      env: { A: 'b' },
      stdin: 'in',
      username: 'u',
      password: PASSWORD,
      email: person.email,
      name: 'a name',
      invitation: 'inv_x',
      role: 'owner',
      network: { allow: ['example.test'], deny: [] },
      network_profile: 'unrestricted',
      credentials: { openai: 'k' },
      snapshot_id: 'snap00000000000000000000',
      count: 1,
    },
  };
}

const seen = new Map<number, number>();

async function attack(bytes: string): Promise<void> {
  const statuses = statusesOf(await exchange(bytes));
  harness.spawned.assertRunning();
  for (const status of statuses) seen.set(status, (seen.get(status) ?? 0) + 1);
  // The sandbox may have been destroyed.
  if (statuses.includes(409)) ({ id } = await harness.create());
}

for (const [what, wrong] of [
  ['with a NUL', 'a\0b'],
  ['that is not Unicode', '\ud800'],
  ['of 101 characters', 'a'.repeat(101)],
  ['of 300 characters', 'a'.repeat(300)],
  ['of 5000 characters', 'a'.repeat(5000)],
  ['that is empty', ''],
  ['that is too large a number', '99999999999999999999'],
] as const) {
  test(`no parameter and no field ${what} causes a fault of the service`, async () => {
    for (const bytes of listWithOneWrong(attacked, wrong)) await attack(bytes);
    await assertNoFault();
  });
}

test('no request, however broken, causes a fault of the service', async () => {
  const run = fc.asyncProperty(rawRequest(attacked), attack);
  await fc.assert(run, { numRuns: RUNS, seed: SEED, endOnFailure: true, interruptAfterTimeLimit: FUZZ_MS });
  for (const status of [200, 201, 400, 401, 404]) assert.ok(seen.has(status), `no ${status} was seen`);
  await assertNoFault();
  await bystander.assertUndisturbed();
});

const UPGRADE =
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==';

test('no WebSocket frame, however broken, causes a fault of the service', async () => {
  harness.runner.onShell = harness.runner.onTerminal = ({ stream, send }) => {
    send(FRAME.stdout, 'hello');
    stream.end();
  };
  const endpoint = fc.constantFrom('exec/ws', 'exec/ws?command=x', 'shell', 'terminal');
  const run = fc.asyncProperty(endpoint, rawFrames, async (path, frames) => {
    const [key = ''] = attacked.credentials.key;
    const head = `GET /v1/runs/${id}/${path} HTTP/1.1\r\nHost: x\r\n${key}\r\n${UPGRADE}\r\n\r\n`;
    assert.match(await exchange(head + frames), /^HTTP\/1\.1 101 /u);
    harness.spawned.assertRunning();
  });
  await fc.assert(run, { numRuns: 200, seed: SEED, endOnFailure: true, interruptAfterTimeLimit: FUZZ_MS });
  await assertNoFault();
  await bystander.assertUndisturbed();
});

/** Checks the log, which also has faults of requests whose client had left. */
async function assertNoFault(): Promise<void> {
  const until = harness.logLines.length;
  await harness.call('GET', '/healthz');
  await waitFor('the end of the log', () =>
    harness.logLines.slice(until).some((line) => line.includes('"/healthz"')),
  );
  const lines = harness.logLines.splice(0).map((line) => JSON.parse(line) as LogLine);
  const faults = lines.filter(
    (line) => ((line.status ?? 0) >= 500 && !isPortAbsent(line)) || line.level > WARNING,
  );
  assert.deepEqual(faults.map((l) => JSON.stringify(l).slice(0, 600)).slice(0, 40), []);
}
