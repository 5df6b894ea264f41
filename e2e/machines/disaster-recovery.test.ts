/** All machines are lost; new ones continue from a backup and the bucket: docs/guides/backup.md, "Disaster recovery". */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import pino from 'pino';
import { Coppice, verifyAudit, type Sandbox } from '../../packages/sdk/src/index.ts';
import { TeamSecrets } from '../../packages/server/src/control/audit/team-secrets.ts';
import { openDatabase, type Database } from '../../packages/server/src/control/db/database.ts';
import { openMasterKeys } from '../../packages/server/src/control/secrets/master-key.ts';
import { SecretBox } from '../../packages/server/src/control/secrets/secret-box.ts';
import { ObjectServer } from '../../packages/server/src/lib/objects/testing/object-server.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { storeIn } from '../fixtures/disks/disk-store.ts';
import { Cluster } from '../fixtures/machines/cluster.ts';
import { API_KEY } from '../fixtures/service/service.ts';

const IMAGE = { image: 'coppice/base:1', memMiB: 256, timeout: 0 };
const WAIT_MS = 120_000;
const POLL_MS = 200;
/** Control sees each sandbox at least this often. */
const SEEN_MS = 60_000;

interface Listed {
  id: string;
  state: string;
}

describe('disaster recovery', { concurrency: false }, () => {
  const made = new AsyncDisposableStack();
  const directory = mkdtempSync(join(tmpdir(), 'cop-disaster-'));
  const backup = join(directory, 'backup');
  let server: ObjectServer;
  let cluster: Cluster;
  let client: Coppice;
  let lostAt = 0;
  const ids = { snapshot: '', hibernated: '', running: '' };

  const openClient = ({ controls: [{ address }] }: Cluster): Coppice =>
    new Coppice({ baseUrl: address, apiKey: API_KEY });
  const openRecords = ({ postgres }: Cluster): Database & AsyncDisposable =>
    openDatabase({ connectionString: postgres.url }, pino({ level: 'silent' }));
  const find = async (id: string): Promise<Sandbox> => {
    const sandbox = await client.sandboxes.get(id);
    assert.ok(sandbox);
    return sandbox;
  };
  const list = (): Listed[] =>
    JSON.parse(cluster.controls[0].runAdmin('runner', 'list', '--json')) as Listed[];
  const poll = <T>(step: string, look: () => Promise<T | undefined>): Promise<T> =>
    pollUntil({ step, timeoutMs: WAIT_MS, intervalMs: POLL_MS }, look);

  before(async () => {
    made.defer(() => rmSync(directory, { recursive: true }));
    server = made.use(await ObjectServer.start());
    cluster = await Cluster.start({ env: storeIn(server) });
    made.defer(() => cluster[Symbol.asyncDispose]());
    client = openClient(cluster);
  });
  after(() => made.disposeAsync());

  it('before: a snapshot, a hibernated sandbox, and a running one with a disk', async () => {
    const first = await client.sandboxes.create(IMAGE);
    await first.exec('echo kept > /root/note');
    ids.snapshot = (await first.snapshot()).id;
    ids.hibernated = first.id;
    await first.hibernate();
    await client.createDisk({ name: 'data', sizeGb: 1 });
    const running = await client.sandboxes.create({ ...IMAGE, disk: 'data' });
    await running.exec('echo flushed > /workspace/note && sync');
    await client.flushDisk('data');
    await running.exec('echo later > /workspace/later && sync');
    ids.running = running.id;
    await using db = openRecords(cluster);
    await poll('both captures in the bucket', async () => {
      const stored = await db
        .selectFrom('capture_objects')
        .select('capture_id')
        .where('stored_at', 'is not', null)
        .execute();
      return stored.length === 2 ? true : undefined;
    });
    cluster.controls[0].runAdmin('backup', backup);
    lostAt = Date.now();
  });

  it('new machines continue from the backup and the bucket', async () => {
    for (const machine of [...cluster.controls, ...cluster.runners]) await machine.kill();
    await cluster[Symbol.asyncDispose]();
    cluster = await Cluster.start({ env: storeIn(server), backup });
    client = openClient(cluster);
    const lost = list().slice(0, 2);
    assert.equal(list().length, 4, 'those that are lost have joined earlier');
    for (const { id } of lost)
      assert.match(cluster.controls[0].runAdmin('runner', 'revoke', id), /revoked for good/u);
    assert.deepEqual(
      list().map(({ state }) => state),
      ['revoked', 'revoked', 'joined', 'joined'],
    );
  });

  it('what ran is lost, and billed until it was last heard', async () => {
    const info = await poll('the loss', async () => {
      const found = await (await find(ids.running)).info();
      return found.status === 'running' ? undefined : found;
    });
    assert.deepEqual([info.status, info.statusReason], ['failed', 'vm_lost']);
    assert.ok(info.endedAt !== null && Date.parse(info.endedAt) <= lostAt, `${info.endedAt}`);
    const ranMs = Date.parse(info.endedAt) - Date.parse(info.createdAt);
    assert.ok(info.billedMs !== null && info.billedMs <= ranMs + SEEN_MS && info.billedMs > 0);
  });

  it('the snapshot and the hibernated sandbox are restored from the bucket', async () => {
    const restored = await poll('the restore', () =>
      client.sandboxes.restore(ids.snapshot).catch(() => undefined),
    );
    assert.equal((await restored.exec('cat /root/note')).stdout, 'kept\n');
    await restored.destroy();
    const resumed = await find(ids.hibernated);
    await resumed.resume();
    assert.equal((await resumed.exec('cat /root/note')).stdout, 'kept\n');
    await resumed.destroy();
  });

  it('the disk has what was flushed', async () => {
    const next = await poll('the disk', () =>
      client.sandboxes.create({ ...IMAGE, disk: 'data' }).catch(() => undefined),
    );
    assert.equal((await next.exec('cat /workspace/note')).stdout, 'flushed\n');
    await next.destroy();
  });

  it('the audit logs continue, and verify', async () => {
    await using db = openRecords(cluster);
    const { current, older } = openMasterKeys(
      join(cluster.controls[0].installation.dataDir, 'control', 'master.key'),
    );
    const secrets = new TeamSecrets(db, new SecretBox(current, older));
    for (const id of [ids.running, ids.hibernated]) {
      const sandbox = await find(id);
      const { audit_key_id: keyId } = await db
        .selectFrom('sandboxes')
        .select('audit_key_id')
        .where('id', '=', id)
        .executeTakeFirstOrThrow();
      const entries = await Array.fromAsync(sandbox.audit());
      const { secret } = await secrets.get(keyId ?? '');
      const verdict = await verifyAudit(entries, secret.reveal(), {
        head: await sandbox.auditHead(),
        sandboxId: id,
      });
      assert.ok(verdict.valid, JSON.stringify(verdict));
      assert.equal(entries.at(-1)?.event, id === ids.running ? 'sandbox.failed' : 'sandbox.destroyed');
    }
  });
});
