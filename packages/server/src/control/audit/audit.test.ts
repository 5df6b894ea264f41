/** Audit logs through the API: actions on sandboxes and the entries that record them. */
import assert from 'node:assert/strict';
import { mkdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { AUDIT_EVENTS, AuditEntry, generateApiKey } from '@coppice/contract';
import pino from 'pino';
import { FRAME } from '../../lib/protocol/frames.ts';
import { ensureApiKey, revokeApiKey } from '../auth/api-key-store.ts';
import type { Database } from '../db/database.ts';
import { openMasterKeys } from '../secrets/master-key.ts';
import { SecretBox } from '../secrets/secret-box.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import type { FakeProcess } from '../testing/fakes/fake-runner.ts';
import { SocketClient } from '../testing/requests/socket-client.ts';
import { verifyLog } from '../testing/verify-log.ts';
import { AuditLog } from './audit-log.ts';
import { AuditStore } from './audit-store.ts';
import { TeamSecrets } from './team-secrets.ts';

/** Time within which requests that are open with a key end after its revocation. */
const KEY_END_MS = 5_000;

let harness: ControlHarness;
let id = '';
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());
beforeEach(async () => {
  harness.runner.onExec = (command) => command.exit(0);
  ({ id } = await harness.create());
});

const call = (method: string, path: string, body?: unknown) =>
  harness.call(method, `/v1/runs/${id}${path}`, body === undefined ? {} : { body });

async function readText(of = id, query = ''): Promise<string> {
  const response = await harness.fetch('GET', `/v1/runs/${of}/audit${query}`);
  assert.equal(response.status, 200);
  assert.equal(response.headers.get('content-type'), 'application/x-ndjson');
  return response.text();
}

/** Reads a log, and checks that each entry has the form that the contract gives its event. */
async function readLog(of = id, query = ''): Promise<AuditEntry[]> {
  const lines = (await readText(of, query)).split('\n').filter((line) => line !== '');
  const entries = lines.map((line) => AuditEntry.parse(JSON.parse(line)));
  for (const { event, data } of entries) assert.deepEqual(AUDIT_EVENTS[event].parse(data), data);
  return entries;
}

const kinds = (entries: readonly AuditEntry[]) => entries.map(({ event }) => event);

function openSecrets(db: Database): TeamSecrets {
  return new TeamSecrets(
    db,
    new SecretBox(openMasterKeys(join(harness.directory, 'data', 'master.key')).current),
  );
}

async function getSecret(of: string): Promise<string> {
  await using db = harness.openDatabase();
  const { audit_key_id } = (await harness.call('GET', `/v1/runs/${of}`)).body as { audit_key_id: string };
  return (await openSecrets(db).get(audit_key_id)).secret.reveal();
}

const verify = (of = id): Promise<number> => verifyLog(harness, of);

test('a log records a sandbox’s life from create to end, without output or file content', async () => {
  harness.runner.onExec = (command) => {
    command.stdout('SECRET output');
    command.exit(3);
  };
  const body = { command: 'cat é', stdin: 'SECRET input', env: { A: 'SECRET variable' } };
  assert.equal((await call('POST', '/exec', body)).body.exit_code, 3);
  await harness.call('POST', `/v1/runs/${id}/files/upload?path=/tmp/a`, { raw: 'SECRET content' });
  await harness.fetch('GET', `/v1/runs/${id}/files/download?path=/tmp/a`).then((answer) => answer.text());
  await harness.fetch('HEAD', `/v1/runs/${id}/files/download?path=/tmp/a`);
  const snapshot = (await call('POST', '/snapshot')).body as { id: string };
  assert.equal((await call('POST', '/rollback', { snapshot_id: snapshot.id })).status, 200);
  assert.equal((await call('POST', '/hibernate')).status, 200);
  assert.equal((await call('POST', '/resume')).status, 200);
  const ended = (await call('DELETE', '')).body as Record<string, unknown>;
  const log = await readLog();
  assert.deepEqual(
    log.map(({ event, data }) => [event, data]),
    [
      ['sandbox.created', { image: log[0]?.data['image'], vcpus: 1, mem_mib: 1024, disk_mib: 4096 }],
      ['exec.start', { command: 'cat é' }],
      [
        'exec.exit',
        { command: 'cat é', exit_code: 3, duration_ms: log[2]?.data['duration_ms'], start_seq: 2 },
      ],
      ['file.upload', { path: '/tmp/a', size: 14 }],
      ['file.download', { path: '/tmp/a', size: 14 }],
      ['sandbox.snapshot', { snapshot_id: snapshot.id }],
      ['sandbox.rolled_back', { snapshot_id: snapshot.id, rollback_id: log[6]?.data['rollback_id'] }],
      ['sandbox.hibernated', {}],
      ['sandbox.resumed', {}],
      [
        'sandbox.destroyed',
        {
          cpu_ms: ended['cpu_ms'],
          mem_peak_bytes: ended['mem_peak_bytes'],
          uptime_ms: ended['uptime_ms'],
          reason: 'requested',
        },
      ],
    ],
  );
  assert.match(String(log[0]?.data['image']), /node:22-slim/u);
  assert.doesNotMatch(await readText(), /SECRET/u);
  assert.equal(await verify(), 10);
});

test('children and restored sandboxes have their own chains, which name their origin', async () => {
  const children = (await call('POST', '/fork', { count: 3 })).body as { id: string; image: string }[];
  const snapshot = (await call('POST', '/snapshot')).body as { id: string };
  const restored = (await harness.call('POST', '/v1/runs/restore', { body: { snapshot_id: snapshot.id } }))
    .body as { id: string };
  const log = await readLog();
  const forked = log.slice(1, 4);
  assert.ok(forked.every(({ event, data }) => event === 'sandbox.forked' && data['parent'] === id));
  assert.deepEqual(
    new Set(forked.map(({ data }) => data['child'])),
    new Set(children.map((child) => child.id)),
  );
  for (const child of children) {
    const [first] = await readLog(child.id);
    assert.equal(first?.seq, 1);
    assert.equal(first.data['parent'], id);
    assert.equal(first.data['snapshot_id'], undefined);
    await verify(child.id);
  }
  const [first] = await readLog(restored.id);
  assert.deepEqual([first?.data['parent'], first?.data['snapshot_id']], [id, snapshot.id]);
  assert.equal(await verify(), 5);
});

test('concurrent execs form one unbroken chain in which each has its start and its exit', async () => {
  const commands = Array.from({ length: 100 }, (_, index) => `echo ${index}`);
  const answered = await Promise.all(commands.map((command) => call('POST', '/exec', { command })));
  assert.ok(answered.every(({ status }) => status === 200));
  const log = await readLog();
  assert.equal(log.length, 201);
  for (const command of commands) {
    const [start, exit] = log.filter(({ data }) => data['command'] === command);
    assert.deepEqual([start?.event, exit?.event], ['exec.start', 'exec.exit']);
    assert.equal(exit?.data['start_seq'], start?.seq);
  }
  assert.equal(await verify(), 201);
});

test('a command whose end was not observed has an exit without a code', async () => {
  harness.runner.onExec = () => undefined;
  const controller = new AbortController();
  const options = { body: { command: 'sleep 1000' }, signal: controller.signal };
  await harness.fetch('POST', `/v1/runs/${id}/exec/stream`, options);
  assert.deepEqual(kinds(await readLog()), ['sandbox.created', 'exec.start']);
  controller.abort();
  await waitFor('the exit', async () => (await readLog()).length === 3);
  assert.equal((await readLog())[2]?.data['exit_code'], null);
});

test('a shell’s commands are logged as execs, even the one that ends the shell; a terminal is logged as opened and closed', async () => {
  const opened = Promise.withResolvers<FakeProcess>();
  harness.runner.onShell = opened.resolve;
  const shell = new SocketClient(harness, `/v1/runs/${id}/shell`);
  await shell.send(
    { type: 'shell_run', id: 'a', command: 'true' },
    { type: 'shell_run', id: 'b', command: 'exit 7' },
  );
  const guest = await opened.promise;
  await waitFor('both commands', () => guest.input.length === 2);
  guest.send(FRAME.done, '{"exit_code":0}');
  guest.send(FRAME.exit, JSON.stringify({ exit_code: 7, timed_out: false }));
  await shell.closed;
  harness.runner.onTerminal = (process) =>
    process.send(FRAME.exit, JSON.stringify({ exit_code: 1, timed_out: false }));
  await new SocketClient(harness, `/v1/runs/${id}/terminal?command=top`).closed;
  assert.deepEqual(
    (await readLog()).slice(1).map(({ event, data }) => [event, data['command'], data['exit_code']]),
    [
      ['exec.start', 'true', undefined],
      ['exec.start', 'exit 7', undefined],
      ['exec.exit', 'true', 0],
      ['exec.exit', 'exit 7', null],
      ['terminal.opened', 'top', undefined],
      ['terminal.closed', undefined, 1],
    ],
  );
});

test('a sandbox that ends by itself has its last entry once, and none after it', async () => {
  harness.runner.endVm(id, 'guest_panic');
  await harness.waitForRecord(id, (record) => record.status === 'failed');
  assert.equal((await call('POST', '/exec', { command: 'x' })).status, 409);
  assert.deepEqual(kinds(await readLog()), ['sandbox.created', 'sandbox.failed']);
  assert.equal((await readLog())[1]?.data['reason'], 'guest_panic');
  await using db = harness.openDatabase();
  const store = new AuditStore(db);
  const parts = { db, store, secrets: openSecrets(db), clock: { wallMs: Date.now } };
  const log = new AuditLog({ ...parts, log: pino({ level: 'silent' }) });
  await assert.rejects(log.append(id, { event: 'sandbox.resumed', data: {} }), { code: 'invalid_state' });
});

test('a failed create leaves its own log', async () => {
  let failed = '';
  harness.runner.onCreate = (vm) => {
    failed = vm;
    throw new Error('no VM today');
  };
  assert.equal((await harness.call('POST', '/v1/runs', { body: { image: 'node:22-slim' } })).status, 500);
  harness.runner.onCreate = () => undefined;
  assert.deepEqual(kinds(await readLog(failed)), ['sandbox.failed']);
  await verify(failed);
});

test('a following reader gets new entries in order until the sandbox has ended', async () => {
  const followed = readLog(id, '?follow=true');
  for (let index = 0; index < 10; index += 1) await call('POST', '/exec', { command: `echo ${index}` });
  await call('DELETE', '');
  const log = await followed;
  assert.deepEqual(log, await readLog());
  assert.equal(log.at(-1)?.event, 'sandbox.destroyed');
  assert.deepEqual(await readLog(id, '?follow=true&after=20'), log.slice(20));
});

test('a following reader gets no more entries once its key is revoked', async () => {
  const apiKey = generateApiKey('us');
  await using db = harness.openDatabase();
  const team = await db.selectFrom('teams').select(['id', 'organization_id']).executeTakeFirstOrThrow();
  await ensureApiKey(db, { organizationId: team.organization_id, teamId: team.id }, apiKey);
  const response = await harness.fetch('GET', `/v1/runs/${id}/audit?follow=true`, { apiKey });
  const followed = response.text();
  await revokeApiKey(db, apiKey);
  const revokedAt = performance.now();
  const text = await followed;
  assert.ok(performance.now() - revokedAt < KEY_END_MS);
  assert.match(text, /sandbox\.created.*\n$/u);
  await call('POST', '/exec', { command: 'true' });
  assert.equal(await verify(), 3);
});

test('another organization’s log is not found, and a wrong query is refused', async () => {
  const apiKey = await harness.addOrganization();
  for (const query of ['', '?head=true', '?follow=true']) {
    const answer = await harness.call('GET', `/v1/runs/${id}/audit${query}`, { apiKey });
    assert.equal(answer.status, 404);
  }
  for (const query of ['?folow=true', '?follow=yes', '?after=-1', '?after=x', '?follow=true&head=true'])
    assert.equal((await harness.call('GET', `/v1/runs/${id}/audit${query}`)).status, 400, query);
});

async function isStored(sandboxId: string): Promise<boolean> {
  await using db = harness.openDatabase();
  const row = await db.selectFrom('sandboxes').selectAll().where('id', '=', sandboxId).executeTakeFirst();
  return row !== undefined && row.audit_stored_at !== null;
}

/** Returns the path of the stored log of `id`. */
async function findPlace(): Promise<string> {
  await using db = harness.openDatabase();
  const { organization_id } = await db
    .selectFrom('sandboxes')
    .select('organization_id')
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
  return join(harness.directory, 'data', 'objects', 'audit', organization_id, `${id}.ndjson`);
}

test('the log of an ended sandbox is put into the object store exactly as the API sends it', async () => {
  await call('POST', '/exec', { command: 'true' });
  await call('DELETE', '');
  await waitFor('the log to be stored', () => isStored(id));
  assert.equal(await readFile(await findPlace(), 'utf8'), await readText());
});

test('a log that cannot be stored does not hold up later ones, and is stored once that is possible', async () => {
  const place = await findPlace();
  await mkdir(join(place, 'in-the-way'), { recursive: true });
  await call('DELETE', '');
  const endAnother = async (): Promise<string> => {
    const { body } = await harness.call('POST', '/v1/runs', { body: { image: 'node:22-slim' } });
    await harness.call('DELETE', `/v1/runs/${body.id}`);
    return String(body.id);
  };
  const later = await endAnother();
  await waitFor('the log of a later sandbox to be stored', () => isStored(later));
  assert.equal(await isStored(id), false);
  await rm(place, { recursive: true });
  await endAnother();
  await waitFor('the log to be stored', () => isStored(id));
  assert.equal(await readFile(place, 'utf8'), await readText());
});

test('no statement of the service can change or remove an entry', async () => {
  await using db = harness.openDatabase();
  await assert.rejects(
    db.deleteFrom('audit_entries').where('sandbox_id', '=', id).execute(),
    /never changed/u,
  );
  await assert.rejects(
    db.updateTable('audit_entries').set({ event: 'exec.exit' }).execute(),
    /never changed/u,
  );
  assert.equal(await verify(), 1);
});

test('the first sandboxes of a team share one secret, even if more are created at once than there are connections', async () => {
  const body = { image: 'node:22-slim' };
  for (let team = 0; team < 5; team += 1) {
    const apiKey = await harness.addOrganization();
    const creates = Array.from({ length: 12 }, () => harness.call('POST', '/v1/runs', { apiKey, body }));
    const created = await Promise.all(creates);
    assert.deepEqual([...new Set(created.map(({ status }) => status))], [201]);
    assert.equal(new Set(created.map((answer) => answer.body.audit_key_id)).size, 1);
  }
});

test('a rotated secret keys the chains that begin after it, and earlier chains keep theirs', async () => {
  const old = await getSecret(id);
  {
    await using db = harness.openDatabase();
    const { team_id } = await db
      .selectFrom('sandboxes')
      .select('team_id')
      .where('id', '=', id)
      .executeTakeFirstOrThrow();
    const secrets = openSecrets(db);
    const rotated = await db.transaction().execute((transaction) => secrets.rotate(transaction, team_id));
    assert.match(rotated.secret.reveal(), /^cts_[A-Za-z0-9_-]{43}$/u);
    assert.deepEqual((await secrets.list(team_id))[0]?.id, rotated.id);
    assert.equal((await secrets.ensure(team_id)).id, rotated.id);
  }
  await call('POST', '/exec', { command: 'true' });
  assert.equal(await getSecret(id), old);
  assert.equal(await verify(), 3);
  const { id: next } = await harness.create();
  assert.notEqual(await getSecret(next), old);
  await verify(next);
});
