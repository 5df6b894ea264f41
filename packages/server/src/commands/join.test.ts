/** Runners that join: a real control with its internal listener, real PostgreSQL, and the runner's side of the join. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { AppError } from '@coppice/contract';
import { pino } from 'pino';
import { newId } from '../lib/new-id.ts';
import { formatAddress } from '../lib/protocol/join-protocol.ts';
import { RunnerIdentity } from '../lib/protocol/runner-protocol.ts';
import { Secret } from '../lib/secret.ts';
import { Fence } from '../runner/http/fence.ts';
import { RunnerServer, type RunnerServerParts } from '../runner/http/runner-server.ts';
import { listenForControls } from '../runner/identity/control-listener.ts';
import { postJoin } from '../runner/identity/join-client.ts';
import { findJoinRecord, type JoinRecord } from '../runner/identity/join-record.ts';
import { openRunnerNetwork } from '../runner/identity/runner-network.ts';
import { RunnerClaims } from '../control/ownership/runner-claims.ts';
import { RunnerConnection } from '../control/placement/runner-connection.ts';
import { RunnerClient } from '../control/placement/runner-client.ts';
import { waitFor } from '../control/testing/control-harness.ts';
import { spawnControl } from '../control/testing/controls/spawn-control.ts';
import { JoinedInstallation, type JoinChange, type JoiningRunner } from './testing/joining-runner.ts';
import { findFreePort } from '../control/testing/free-port.ts';
import { ControlIdentity } from '../control/authority/control-identity.ts';
import { revokeRunner } from '../control/authority/joined-runners.ts';

const log = pino({ level: 'silent' });
const HOST = '127.0.0.1';

let installation: JoinedInstallation;
before(async () => {
  installation = await JoinedInstallation.open();
});
after(() => installation[Symbol.asyncDispose]());

const rowOf = (id: string) =>
  installation.db.selectFrom('runners').selectAll().where('id', '=', id).executeTakeFirstOrThrow();

/** Waits until the control has claimed the joined runner. Until it is revoked or joins anew, its epoch stays the same. */
const claimedRowOf = async (id: string) => {
  await waitFor('claim of the runner', async () => (await rowOf(id)).owner !== null);
  return rowOf(id);
};

const countRunners = async (): Promise<number> =>
  (await installation.db.selectFrom('runners').select('id').execute()).length;

/** Asserts that the join fails so, that it adds no runner, and that nothing is stored on the runner's machine. */
async function assertRefused(
  runner: JoiningRunner,
  change: JoinChange,
  [code, message]: readonly [string, RegExp],
): Promise<void> {
  const runners = await countRunners();
  await assert.rejects(runner.join(change), (error: AppError) => {
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    return true;
  });
  assert.equal(await countRunners(), runners);
  assert.equal(findJoinRecord(runner.dataDir), undefined);
}

test('a runner joins; then a control claims it, and connects to it with the pinned key', async () => {
  const runner = await installation.addRunner();
  const record = await runner.join();
  const row = await claimedRowOf(record.runner_id);
  const controlId = await ownControl();
  assert.deepEqual(
    [row.address, row.region, row.owner, row.epoch, row.revoked_at],
    [formatAddress(runner.listen), 'us', controlId, 1, null],
  );
  assert.equal(new Date(row.joined_at ?? 0).toISOString(), record.joined_at);
  assert.equal(statSync(join(runner.dataDir, 'joined.json')).mode & 0o777, 0o600);
  const fence = new Fence(runner.dataDir);
  const status = () => ({
    runner_id: record.runner_id,
    protocol: { oldest: 1, newest: 1 },
    epoch: fence.epoch,
  });
  const parts = { status, roster: () => ({ vms: [] }), fence, log } as unknown as RunnerServerParts;
  const server = await RunnerServer.listen(parts, {
    socketPath: join(runner.dataDir, 'socket'),
    network: openRunnerNetwork(runner.dataDir, runner.listen),
  });
  const identity = new ControlIdentity(await installation.authority(), controlId);
  const fingerprint = row.fingerprint ?? '';
  using connection = new RunnerConnection(
    { kind: 'network', ...runner.listen, fingerprint, credentials: () => identity.credentials },
    log,
  );
  const client = new RunnerClient(connection);
  const { runner_id: id, epoch: seen } = RunnerIdentity.parse(await client.identify());
  client.useEpoch((await new RunnerClaims(installation.db, controlId).claim(id, seen)) ?? 0);
  await connection.callBytes({ method: 'GET', path: '/roster', headDeadlineMs: 5_000 });
  await server.close();
  assert.equal(fence.epoch, 1);
});

async function ownControl(): Promise<string> {
  const { id } = await installation.db.selectFrom('controls').select('id').executeTakeFirstOrThrow();
  return id;
}

test('a token that is wrong, used or expired is refused with the remedy', async () => {
  const { authority } = await installation.makeToken();
  const wrong = { secret: new Secret('x'.repeat(43)), authority };
  const used = await installation.makeToken();
  await (await installation.addRunner()).join({ token: used });
  const expired = await installation.makeToken({ validMs: 0 });
  for (const [token, reason] of [
    [wrong, /is not one of this installation: make a new one with "coppice admin runner token"/u],
    [used, /has been used: make a new one/u],
    [expired, /has expired: make a new one/u],
  ] as const) {
    const runner = await installation.addRunner();
    await assertRefused(runner, { token }, ['unauthorized', reason]);
  }
});

test('of two joins with one token at once, one succeeds', async () => {
  for (let round = 0; round < 5; round += 1) {
    const token = await installation.makeToken();
    const runners = [await installation.addRunner(), await installation.addRunner()];
    const before_ = await countRunners();
    const outcomes = await Promise.allSettled(runners.map((runner) => runner.join({ token })));
    const refused = outcomes.flatMap((outcome) =>
      outcome.status === 'rejected' ? [outcome.reason as AppError] : [],
    );
    assert.deepEqual(
      refused.map(({ code }) => code),
      ['unauthorized'],
    );
    assert.equal(await countRunners(), before_ + 1);
  }
});

test('the secret is not sent to a server that is not a control of the installation of the token', async () => {
  const runner = await installation.addRunner();
  const { secret } = await installation.makeToken();
  const other = { secret, authority: 'f'.repeat(64) };
  await assertRefused(runner, { token: other }, [
    'conflicting_options',
    /belongs to another installation than the token: use the token of that installation/u,
  ]);
  const bytes: Buffer[] = [];
  const stranger = createServer((socket) => {
    socket.on('data', (chunk) => bytes.push(chunk));
    socket.on('error', () => undefined);
    setTimeout(() => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'), 50);
  });
  stranger.listen(0, HOST);
  await once(stranger, 'listening');
  const control = { host: HOST, port: (stranger.address() as { port: number }).port };
  await assertRefused(runner, { control }, [
    'unavailable',
    /cannot be reached \(TLS: wrong version number\): the URL is that of COPPICE_INTERNAL_LISTEN/u,
  ]);
  assert.ok(!Buffer.concat(bytes).includes(secret.reveal()));
  stranger.close();
  const closed = { host: HOST, port: await findFreePort() };
  await assertRefused(runner, { control: closed }, ['unavailable', /ECONNREFUSED.*must be open/u]);
});

test('an address that control cannot use is refused, and the token can be used again', async () => {
  const runner = await installation.addRunner();
  const token = await installation.makeToken();
  const nowhere = { host: HOST, port: await findFreePort() };
  await assertRefused(runner, { token, address: nowhere }, [
    'unavailable',
    /control cannot connect to the runner at 127\.0\.0\.1:\d+ \(connect ECONNREFUSED .*name an address with --address/u,
  ]);
  await assertRefused(runner, { token, address: installation.internal }, [
    'unavailable',
    /\(TLS: .*no application protocol\): name an address/u,
  ]);
  const other = await installation.addRunner();
  await other.join();
  const network = openRunnerNetwork(other.dataDir, other.listen);
  const listener = await listenForControls({ ...network, onSocket: (socket) => socket.resume(), log });
  await assertRefused(runner, { token, address: other.listen }, [
    'unavailable',
    /presents another key than the runner .*another program or machine has this address/u,
  ]);
  await listener[Symbol.asyncDispose]();
  const wildcard = { host: '0.0.0.0', port: 1 };
  await assert.rejects(runner.join({ token, address: wildcard }), {
    code: 'invalid_request',
    message: /0\.0\.0\.0:1 is no address to which a control can connect: name one with --address/u,
  });
  await runner.join({ token });
});

test('a listen address that is in use is refused, with the name of its setting', async () => {
  const runner = await installation.addRunner();
  const other = createServer().listen(runner.listen.port, HOST);
  await once(other, 'listening');
  await assert.rejects(runner.join(), { code: 'EADDRINUSE', setting: 'COPPICE_RUNNER_LISTEN' });
  other.close();
});

test('a runner that has joined does not join again', async () => {
  const runner = await installation.addRunner();
  const { runner_id } = await runner.join();
  await assert.rejects(runner.join(), {
    code: 'already_exists',
    message: new RegExp(`${runner_id} joined on .* through .*to join anew, revoke it there`, 'u'),
  });
});

test('a runner that lost the answer joins again with another token, as the same runner', async () => {
  const runner = await installation.addRunner();
  const first = await runner.join();
  const earlier = await claimedRowOf(first.runner_id);
  runner.forget('joined.json');
  const again = await runner.join();
  assert.equal(again.runner_id, first.runner_id);
  const later = await rowOf(first.runner_id);
  assert.deepEqual([later.fingerprint, later.epoch], [earlier.fingerprint, earlier.epoch]);
});

test('a runner with another key is refused unless the token is for it; it then begins a new epoch', async () => {
  const runner = await installation.addRunner();
  const { runner_id: id } = await runner.join();
  const earlier = await claimedRowOf(id);
  runner.forget('joined.json');
  runner.forget('identity.pem');
  await assertRefused(runner, {}, ['already_exists', /another key: .*coppice admin runner token --runner/u]);
  const other = await installation.addRunner();
  const token = await installation.makeToken({ runnerId: id });
  await assertRefused(other, { token }, ['unauthorized', /the token is for runner-/u]);
  await runner.join({ token });
  const later = await rowOf(id);
  assert.notEqual(later.fingerprint, earlier.fingerprint);
  // The control may have claimed it again, which begins the next epoch.
  assert.equal(later.owner === null ? later.epoch : later.epoch - 1, earlier.epoch + 1);
});

test('a revoked runner is claimed by no control, and joins never again', async () => {
  const { db } = installation;
  const runner = await installation.addRunner();
  const { runner_id: id } = await runner.join();
  const owner = await ownControl();
  const claims = new RunnerClaims(db, owner);
  const epoch = (await claims.claim(id)) ?? 0;
  await revokeRunner(db, id);
  await revokeRunner(db, id);
  const row = await rowOf(id);
  assert.deepEqual([row.owner, row.epoch], [null, epoch + 1]);
  assert.equal(await claims.claim(id), undefined);
  runner.forget('joined.json');
  await assertRefused(runner, {}, [
    'invalid_state',
    /revoked for good: .*delete the runner's data directory/u,
  ]);
  await assert.rejects(installation.makeToken({ runnerId: id }), { code: 'invalid_state' });
  await assert.rejects(revokeRunner(db, 'runner-0'), {
    code: 'not_found',
    message: /coppice admin runner list/u,
  });
  const { id: local } = installation.harness.runner;
  await assert.rejects(revokeRunner(db, local), { code: 'invalid_state', message: /control's own machine/u });
});

test('the runner of a machine that is gone is revoked once its control is, which is fenced', async () => {
  const { db } = installation;
  const owner = newId('ctl');
  const lease = { started_at: Date.now(), lease_until: Date.now() + 60_000 };
  await db
    .insertInto('controls')
    .values({ id: owner, node_id: newId('node'), version: '0.0.0', ...lease })
    .execute();
  const claims = new RunnerClaims(db, owner);
  const id = `runner-${newId('').repeat(2).slice(0, 32)}`;
  await claims.add(id, 'us');
  await claims.claim(id);
  await assert.rejects(revokeRunner(db, id), {
    code: 'invalid_state',
    message: /which uses it; stop that control first/u,
  });
  await db.updateTable('controls').set({ lease_until: 1 }).where('id', '=', owner).execute();
  await revokeRunner(db, id);
  const row = await rowOf(id);
  assert.deepEqual([row.owner, row.epoch], [null, 2]);
  const control = await db.selectFrom('controls').selectAll().where('id', '=', owner).executeTakeFirst();
  assert.equal(control?.is_fenced, true);
  assert.equal(await claims.claim(id), undefined);
});

test('a claim is above the highest epoch that the runner knows, which a restored database does not', async () => {
  const { db } = installation;
  const id = `runner-${newId('').repeat(2).slice(0, 32)}`;
  const claims = new RunnerClaims(db, await ownControl());
  await claims.add(id, 'us');
  assert.equal(await claims.claim(id, 41), 42);
  assert.equal(await claims.claim(id, 42), 42);
  assert.equal(await claims.claim(id, 50), 51);
});

test('the internal listener refuses requests that are no joins, and names what is wrong', async () => {
  const { certificate } = await installation.authority();
  const runner = await installation.addRunner();
  const { runner_id, address } = await runner.join();
  const good = {
    secret: 'x'.repeat(43),
    runner_id,
    address,
    fingerprint: 'f'.repeat(64),
    protocol: { oldest: 1, newest: 1 },
  };
  const refused: [change: Record<string, unknown>, message: RegExp][] = [
    [{ secret: '' }, /secret of a token[^]*secret/u],
    [{ runner_id: 'x' }, /runner_id/u],
    [{ address: 'x' }, /must be host:port, such as 10\.0\.0\.5:9443/u],
    [{ address: 'http://x:1' }, /must be host:port/u],
    [{ fingerprint: 'F'.repeat(64) }, /lower-case hexadecimal/u],
    [{ more: 1 }, /more/u],
  ];
  for (const [change, message] of refused)
    await assert.rejects(postJoin(installation.internal, certificate, { ...good, ...change }), {
      code: 'invalid_request',
      message,
    });
  const large = { ...good, more: 'x'.repeat(20_000) };
  await assert.rejects(postJoin(installation.internal, certificate, large), { code: 'payload_too_large' });
  const token = await installation.makeToken({ runnerId: runner_id });
  const newer = { ...good, secret: token.secret.reveal(), protocol: { oldest: 7, newest: 8 } };
  await assert.rejects(postJoin(installation.internal, certificate, newer), {
    code: 'conflicting_options',
    message: /the runner speaks versions 7 to 8 of the protocol, and this control versions 1 to 2: install/u,
  });
});

test('a runner listens on the network only with its own record of a join', async () => {
  const runner = await installation.addRunner();
  const open = () => openRunnerNetwork(runner.dataDir, runner.listen);
  assert.throws(open, {
    name: 'NotJoinedError',
    message:
      /^COPPICE_RUNNER_LISTEN: this runner has not joined .*coppice admin runner join <https:\/\/control:port>/u,
  });
  await runner.join();
  open();
  const path = join(runner.dataDir, 'joined.json');
  const record = readFileSync(path, 'utf8');
  const copied = { ...(JSON.parse(record) as JoinRecord), runner_id: `runner-${'b'.repeat(32)}` };
  writeFileSync(path, JSON.stringify(copied));
  assert.throws(open, { name: 'NotJoinedError', message: /is a copy from runner-b/u });
  writeFileSync(path, record.slice(0, 40));
  assert.throws(open, {
    name: 'NotJoinedError',
    message: /is damaged: put back a copy, or delete it and join again/u,
  });
  writeFileSync(path, record);
  const key = join(runner.dataDir, 'identity.pem');
  writeFileSync(key, readFileSync(key, 'utf8').slice(0, 900));
  assert.throws(open, { code: 'internal', message: /identity\.pem is damaged: .*--runner runner-/u });
});

test('a join whose control is killed leaves the token or the row, and can be repeated', async () => {
  await using killed = await JoinedInstallation.open({ isStarted: false });
  const { harness } = killed;
  const faults = mkdtempSync(join(tmpdir(), 'cop-join-'));
  const serve = async (): Promise<void> => {
    const config = { ...harness.config, internalListen: killed.internal };
    harness.spawned = await spawnControl(config, { faultDirectory: faults });
  };
  const runner = await killed.addRunner();
  await serve();
  const token = await killed.makeToken();
  for (const [step, rows] of [
    ['join.reached', 0],
    ['join.admitted', 1],
  ] as const) {
    writeFileSync(join(faults, `hold-${step}`), '');
    const joining = assert.rejects(runner.join({ token }), {
      code: 'unavailable',
      message: /cannot be reached/u,
    });
    await waitFor(`a hold at ${step}`, () => existsSync(join(faults, `at-${step}`)));
    await harness.spawned?.kill();
    await joining;
    rmSync(join(faults, `hold-${step}`));
    const joined = await killed.db
      .selectFrom('runners')
      .select('id')
      .where('address', 'is not', null)
      .execute();
    assert.equal(joined.length, rows);
    assert.equal(findJoinRecord(runner.dataDir), undefined);
    await serve();
  }
  await assert.rejects(runner.join({ token }), { code: 'unauthorized', message: /has been used/u });
  await runner.join();
  rmSync(faults, { recursive: true });
});
