/** The connection between control and a runner on another machine: real TLS on both sides, and the runner's own server. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { createServer, connect as connectPlain } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { connect as connectTls } from 'node:tls';
import type { AppError } from '@coppice/contract';
import { pino } from 'pino';
import { z } from 'zod';
import { newId } from '../lib/new-id.ts';
import { EPOCH_HEADER, PROTOCOL_HEADER, WireRefusedError } from '../lib/protocol/wire-headers.ts';
import { buildControlUri, toInternalContext, type Credentials } from '../lib/tls/control-role.ts';
import { issueCertificate, exportKey, makeKeyPair } from '../lib/tls/issue-certificate.ts';
import { EventSpool } from '../runner/driver/event-spool.ts';
import { Fence } from '../runner/http/fence.ts';
import { RunnerServer, type RunnerServerParts } from '../runner/http/runner-server.ts';
import { openRunnerIdentity, type RunnerCertificate } from '../runner/identity/runner-identity.ts';
import { waitFor } from '../control/testing/control-harness.ts';
import { TestInstallation } from '../control/testing/test-installation.ts';
import { get, RunnerConnection } from '../control/placement/runner-connection.ts';
import { RunnerClient } from '../control/placement/runner-client.ts';

const HOST = '127.0.0.1';
const ID = `runner-${'a'.repeat(32)}`;
const log = pino({ level: 'silent' });
const directory = mkdtempSync(join(tmpdir(), 'cop-net-'));
after(() => rmSync(directory, { recursive: true }));
const installation = new TestInstallation();
const control = installation.issueControl();
let count = 0;

interface StartedRunner extends AsyncDisposable {
  port: number;
  dataDir: string;
  identity: RunnerCertificate;
  socketPath: string;
  /** Connects with the credentials of a control, by default of the one of this file. */
  connect: (change?: { credentials?: Credentials; fingerprint?: string }) => RunnerConnection;
}

async function startRunner({
  dataDir = join(directory, `${(count += 1)}`),
  port = 0,
  protocol = { oldest: 1, newest: 1 },
  onDestroy = async (): Promise<object> => ({}),
} = {}): Promise<StartedRunner> {
  const identity = openRunnerIdentity(makeDirectory(dataDir), ID);
  const fence = new Fence(dataDir);
  const parts = {
    status: () => ({ runner_id: ID, protocol, epoch: fence.epoch }),
    roster: () => ({ vms: [] }),
    spool: EventSpool.open(join(dataDir, 'events'), { log }),
    heartbeat: () => ({ type: 'heartbeat' }),
    fleet: { destroy: onDestroy },
    fence,
    log,
  };
  const { cert, key } = identity;
  const socketPath = join(dataDir, 'socket');
  const credentials = { cert, key, ca: installation.authority.certificate };
  const server = await RunnerServer.listen(parts as unknown as RunnerServerParts, {
    socketPath,
    network: { listen: { host: HOST, port }, credentials },
  });
  const bound = server.port ?? 0;
  return {
    port: bound,
    dataDir,
    identity,
    socketPath,
    connect: ({ credentials: own = control.credentials, fingerprint = identity.fingerprint } = {}) =>
      new RunnerConnection(
        { kind: 'network', host: HOST, port: bound, fingerprint, credentials: () => own },
        log,
      ),
    [Symbol.asyncDispose]: () => server.close(),
  };
}

function makeDirectory(path: string): string {
  mkdirSync(path, { recursive: true });
  return path;
}

const readStatus = (connection: RunnerConnection): Promise<unknown> =>
  connection.callJson({ ...get('/status'), headDeadlineMs: 5_000 }, z.unknown());
const readRoster = (connection: RunnerConnection): Promise<unknown> =>
  connection.callJson({ ...get('/roster'), headDeadlineMs: 5_000 }, z.unknown());

const closed = (emitter: NodeJS.EventEmitter): Promise<void> =>
  new Promise((resolve) => void emitter.once('close', () => resolve()));

function causeOf(error: AppError): unknown {
  assert.equal(error.code, 'unavailable');
  return error.cause;
}

test('a control of the installation reads from its runner, whose key file only its own user may read', async () => {
  await using runner = await startRunner();
  using connection = runner.connect();
  assert.deepEqual(await readStatus(connection), {
    runner_id: ID,
    protocol: { oldest: 1, newest: 1 },
    epoch: 0,
  });
  assert.equal(statSync(join(runner.dataDir, 'identity.pem')).mode & 0o777, 0o600);
  assert.equal(openRunnerIdentity(runner.dataDir, ID).fingerprint, runner.identity.fingerprint, 'made once');
});

test('a peer without a certificate of the authority for a control gets no answer', async () => {
  await using runner = await startRunner();
  const uri = buildControlUri(newId('ctl'));
  const stranger = makeKeyPair();
  const selfSigned = issueCertificate(
    {
      commonName: 'x',
      publicKey: stranger.publicKey,
      validFrom: new Date(0),
      validTo: new Date('2090-01-01'),
      uri,
    },
    { commonName: 'x', key: stranger.privateKey },
  );
  const ca = installation.authority.certificate;
  const refused: [name: string, credentials: Credentials][] = [
    ['of another installation', new TestInstallation().issueControl().credentials],
    ['self-signed with the name of a control', { cert: selfSigned, key: exportKey(stranger.privateKey), ca }],
    ['expired', installation.issueOther({ uri, from: -9, to: -1 })],
    ['not valid yet', installation.issueOther({ uri, from: 1, to: 9 })],
    ['of another role', installation.issueOther({ uri: `coppice://runner/${ID}` })],
    ['without a role', installation.issueOther({})],
    ['of the runner itself', { cert: runner.identity.cert, key: runner.identity.key, ca }],
  ];
  for (const [name, credentials] of refused) {
    using connection = runner.connect({ credentials });
    await assert.rejects(readStatus(connection), { code: 'unavailable' }, name);
  }
  using connection = runner.connect();
  await readStatus(connection);
});

test('a peer without any certificate, one with an older TLS and one without TLS get no answer', async () => {
  await using runner = await startRunner();
  for (const options of [
    {},
    { ...toInternalContext(control.credentials), minVersion: 'TLSv1.2', maxVersion: 'TLSv1.2' },
  ]) {
    const socket = connectTls({
      host: HOST,
      port: runner.port,
      rejectUnauthorized: false,
      ...options,
    });
    socket.on('secureConnect', () => socket.write('x'.repeat(100)));
    const bytes: Buffer[] = [];
    socket.on('data', (chunk) => bytes.push(chunk));
    socket.on('error', () => undefined);
    await closed(socket);
    assert.deepEqual(bytes, []);
  }
  const plain = connectPlain(runner.port, HOST);
  plain.on('error', () => undefined);
  plain.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
  plain.resume();
  await closed(plain);
});

test('a runner with another key at the same address gets no request', async () => {
  await using runner = await startRunner();
  await using other = await startRunner();
  using connection = other.connect({ fingerprint: runner.identity.fingerprint });
  await assert.rejects(readStatus(connection), (error: AppError) => {
    assert.match(String(causeOf(error)), /presents another key than the runner that joined with it/u);
    return true;
  });
});

test('requests over the network need epoch and protocol; the status needs neither', async () => {
  await using runner = await startRunner();
  using connection = runner.connect();
  await readStatus(connection);
  await assert.rejects(readRoster(connection), { code: 'unavailable', message: /being taken over/u });
  connection.epoch = 1;
  await readRoster(connection);
  for (const value of ['0', '-1', '1.5', '01', '1e3', '9'.repeat(16), 'x', '']) {
    const request = { ...get('/roster'), headers: { [EPOCH_HEADER]: value } };
    connection.epoch = undefined;
    await assert.rejects(connection.callJson(request, z.unknown()), { code: 'invalid_request' }, value);
  }
  using local = new RunnerConnection({ kind: 'socket', path: runner.socketPath }, log);
  await readRoster(local);
});

test('a lower epoch is refused, over both ways and after a restart; its open streams end', async () => {
  const first = await startRunner();
  const { dataDir, port } = first;
  using former = first.connect();
  using next = first.connect();
  former.epoch = 4;
  const { stream } = await former.request(get('/events'));
  const isClosed = closed(stream.on('error', () => undefined).resume());
  next.epoch = 5;
  await readRoster(next);
  await isClosed;
  const isFenced = (error: AppError): boolean => {
    const cause = causeOf(error);
    assert.ok(cause instanceof WireRefusedError);
    assert.equal(cause.code, 'fenced');
    assert.match(cause.message, /the epoch of the request is 4, the highest so far 5/u);
    return true;
  };
  await assert.rejects(readRoster(former), isFenced);
  using local = new RunnerConnection({ kind: 'socket', path: first.socketPath }, log);
  local.epoch = 4;
  await assert.rejects(readRoster(local), isFenced);
  await first[Symbol.asyncDispose]();
  await using _again = await startRunner({ dataDir, port });
  await assert.rejects(readRoster(former), isFenced);
  await readRoster(next);
});

test('a runner that stops refuses new requests and ends those that are under way, but waits for none without an end', async () => {
  const [asked, answered] = [Promise.withResolvers<void>(), Promise.withResolvers<object>()];
  const onDestroy = (): Promise<object> => {
    asked.resolve();
    return answered.promise;
  };
  const runner = await startRunner({ onDestroy });
  using connection = runner.connect();
  connection.epoch = 1;
  const { stream } = await connection.request({ ...get('/events'), isEndless: true });
  const isCut = closed(stream.on('error', () => undefined).resume());
  const path = `/vms/run${'1'.repeat(20)}`;
  const destroyed = connection.callJson({ method: 'DELETE', path, headDeadlineMs: 60_000 }, z.unknown());
  await asked.promise;
  const stopped = runner[Symbol.asyncDispose]();
  await waitFor('the refusal', async () => {
    const error = await readRoster(connection).catch((refusal: unknown) => refusal as AppError);
    return error !== undefined && (error as AppError).code === 'unavailable';
  });
  answered.resolve({ done: true });
  assert.deepEqual(await destroyed, { done: true });
  await Promise.all([stopped, isCut]);
  await using _again = await startRunner({ dataDir: runner.dataDir, port: runner.port });
  await readRoster(connection);
});

test('a runner without a common version is not used, and names both versions', async () => {
  await using runner = await startRunner({ protocol: { oldest: 3, newest: 4 } });
  using connection = runner.connect();
  await assert.rejects(new RunnerClient(connection).identify(), {
    code: 'unavailable',
    message:
      /speaks versions 3 to 4 of the protocol, and this control versions 1 to 2: install the same version/u,
  });
  connection.epoch = 1;
  const request = { ...get('/roster'), headers: { [PROTOCOL_HEADER]: '3' } };
  connection.protocol = 3;
  await assert.rejects(connection.callJson(request, z.unknown()), (error: AppError) => {
    const cause = causeOf(error);
    assert.ok(cause instanceof WireRefusedError);
    assert.equal(cause.code, 'protocol_unsupported');
    return true;
  });
});

test('a connection on which nothing arrives any more is given up, and the next request makes another one', async () => {
  await using runner = await startRunner();
  let isCut = false;
  const relay = createServer((from) => {
    const to = connectPlain(runner.port, HOST);
    for (const [source, target] of [
      [from, to],
      [to, from],
    ] as const) {
      const cut = isCut;
      source.on('data', (chunk) => void (cut === isCut && target.write(chunk)));
      source.on('error', () => undefined);
      source.on('close', () => target.destroy());
    }
  });
  relay.listen(0, HOST);
  await once(relay, 'listening');
  const { port } = relay.address() as { port: number };
  const address = { kind: 'network', host: HOST, port, fingerprint: runner.identity.fingerprint } as const;
  using connection = new RunnerConnection(
    { ...address, credentials: () => control.credentials, pingEveryMs: 20 },
    log,
  );
  await readStatus(connection);
  isCut = true;
  const lost = readStatus(connection);
  await assert.rejects(lost, { code: 'unavailable', message: /cannot be reached/u });
  await waitFor('another connection', async () =>
    readStatus(connection).then(
      () => true,
      () => false,
    ),
  );
  relay.close();
});
