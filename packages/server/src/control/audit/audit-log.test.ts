/** The writer of the chains, with a database that loses answers, becomes unreachable, and has other writers. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import fc from 'fast-check';
import { AppError } from '@coppice/contract';
import pino from 'pino';
import { verifyAudit } from '../../../../sdk/src/audit/verify-audit.ts';
import { parseAuditLine } from '../../../../sdk/src/audit/audit-entry.ts';
import type { Database } from '../db/database.ts';
import type { AuditEntryRow } from './audit-tables.ts';
import { openMasterKeys } from '../secrets/master-key.ts';
import { SecretBox } from '../secrets/secret-box.ts';
import { SandboxStore } from '../sandbox/record/sandbox-store.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { formatEntry, type AuditNote } from './audit-chain.ts';
import { AuditLog } from './audit-log.ts';
import { EntriesElsewhere } from './entries-elsewhere.ts';
import { AuditStore } from './audit-store.ts';
import { TeamSecrets } from './team-secrets.ts';

type Fault = 'none' | 'lost' | 'refused' | 'late';

/**
 * Fails as `faults` says: with the statement executed (`lost`), not executed (`refused`), or executed later (`late`).
 */
class FaultyStore extends AuditStore {
  faults: Fault[] = [];
  inserts = 0;
  late: Promise<void>[] = [];

  override async insert(rows: readonly AuditEntryRow[], db?: Database): Promise<void> {
    this.inserts += 1;
    const fault = this.faults.shift() ?? 'none';
    if (fault === 'late') this.late.push(delay(150).then(() => super.insert(rows).catch(() => undefined)));
    else if (fault !== 'refused') await super.insert(rows, db);
    if (fault !== 'none') throw new Error('Connection terminated unexpectedly');
  }
}

let harness: ControlHarness;
let db: Database & AsyncDisposable;
let store: FaultyStore;
let secrets: TeamSecrets;
let log: AuditLog;
let ids: string[] = [];
let nowMs = 1_763_000_000_000;

before(async () => {
  harness = await startHarness({ reconcileIntervalMs: 3_600_000 });
  db = harness.openDatabase();
  const { current: masterKey } = openMasterKeys(join(harness.directory, 'data', 'master.key'));
  secrets = new TeamSecrets(db, new SecretBox(masterKey));
});
after(async () => {
  await db[Symbol.asyncDispose]();
  await harness[Symbol.asyncDispose]();
});

const openLog = (): AuditLog =>
  new AuditLog({ db, store, secrets, clock: { wallMs: () => nowMs }, log: pino({ level: 'silent' }) });

/** Inserts three sandboxes that are older than audit logs. */
beforeEach(async () => {
  store = new FaultyStore(db);
  log = openLog();
  const { has_env: _, ...row } = await new SandboxStore(db).get((await harness.create()).id);
  ids = [0, 1, 2].map(() => `run${crypto.randomUUID().replaceAll('-', '').slice(0, 20)}`);
  await new SandboxStore(db).insert(
    ids.map((one) => ({ ...row, id: one, labels: '{}', audit_key_id: null, status: 'running' as const })),
    () => undefined,
  );
});

const exec = (command: string): AuditNote => ({ event: 'exec.start', data: { command } });

async function readCommands(id: string): Promise<unknown[]> {
  const rows = await store.listEntries(id, 0);
  const { audit_key_id } = await new SandboxStore(db).get(id);
  const { secret } = await secrets.get(audit_key_id ?? '');
  const verdict = await verifyAudit(
    rows.map((row) => parseAuditLine(formatEntry(row))),
    secret.reveal(),
  );
  assert.ok(verdict.valid, JSON.stringify(verdict));
  return rows.map(({ data }) => (JSON.parse(data) as { command: unknown }).command);
}

const numbers = (count: number): string[] => Array.from({ length: count }, (_, index) => `${index}`);

test('the waiting entries of all sandboxes are inserted together, and each sandbox’s in order', async () => {
  const appended = numbers(300).map((command, index) => log.append(ids[index % 3] ?? '', exec(command)));
  const seqs = await Promise.all(appended);
  assert.deepEqual(seqs.slice(0, 6), [1, 1, 1, 2, 2, 2]);
  assert.ok(store.inserts <= 3, `${store.inserts} statements`);
  assert.deepEqual(
    await readCommands(ids[0] ?? ''),
    numbers(300).filter((_, index) => index % 3 === 0),
  );
});

test('whatever answers are lost, acknowledged entries are in an unbroken chain, in order and once', async () => {
  const faults = fc.array(fc.constantFrom<Fault>('none', 'lost', 'refused', 'late'), { maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(faults, async (planned) => {
      store.faults = [...planned];
      log = openLog();
      const [id = ''] = ids;
      const before = (await store.listEntries(id, 0)).length;
      const seqs: number[] = [];
      for (const command of numbers(4)) seqs.push(await log.append(id, exec(command)));
      await Promise.all(store.late.splice(0));
      assert.deepEqual(
        seqs,
        numbers(4).map((_, index) => before + index + 1),
      );
      assert.deepEqual((await readCommands(id)).slice(before), numbers(4));
    }),
    { numRuns: 15 },
  );
});

test('a change and its entry are committed together or not at all', async () => {
  const [id = ''] = ids;
  const commit = (timeout: number, fails = false) =>
    log.commit(id, { event: 'sandbox.resumed', data: {} }, async (transaction) => {
      await transaction.updateTable('sandboxes').set({ timeout_s: timeout }).where('id', '=', id).execute();
      if (fails) throw new AppError('capacity', 'no');
      return timeout;
    });
  assert.equal(await commit(11), 11);
  await assert.rejects(commit(22, true), { code: 'capacity' });
  store.faults = ['refused'];
  await assert.rejects(commit(33), { code: 'unavailable' });
  const { timeout_s } = await new SandboxStore(db).get(id);
  assert.equal(timeout_s, 11);
  assert.equal(await log.append(id, exec('x')), 2);
});

test('a seq that another writer took is not used again: the chain continues after it', async () => {
  const [id = ''] = ids;
  await log.append(id, exec('first'));
  await openLog().append(id, exec('of another'));
  await log.append(id, exec('third'));
  assert.deepEqual(await readCommands(id), ['first', 'of another', 'third']);
});

test('a sandbox whose log cannot be written does not block the logs of others', async () => {
  const append = (id: string) => log.append(id, exec('x'));
  const [known = '', other = ''] = ids;
  const outcomes = await Promise.allSettled([append(known), append('run-of-nobody'), append(other)]);
  assert.deepEqual(
    outcomes.map(({ status }) => status),
    ['fulfilled', 'rejected', 'fulfilled'],
  );
});

test('the times of a chain never decrease, even if the clock is set back', async () => {
  const [id = ''] = ids;
  await log.append(id, exec('a'));
  nowMs -= 3_600_000;
  await log.append(id, exec('b'));
  const [a, b] = await store.listEntries(id, 0);
  assert.equal(b?.ts, a?.ts);
  await readCommands(id);
});

test('a long log is read completely, in pages of bounded size', async () => {
  const [id = ''] = ids;
  const command = 'x'.repeat(300_000);
  for (const index of numbers(8)) await log.append(id, exec(`${index}${command}`));
  const page = await store.listEntries(id, 0);
  assert.ok(page.length >= 4 && page.length < 8, `${page.length} entries`);
  assert.equal((await store.listEntries(id, 7)).length, 1);
  assert.deepEqual(await store.listEntries(id, 8), []);
});

test('two writers that commit changes to one log in turn both succeed, and the chain stays whole', async () => {
  const id = ids[0] ?? '';
  const logs = [openLog(), openLog()];
  const done: string[] = [];
  for (const round of numbers(6)) {
    const writer = logs[Number(round) % 2];
    await writer?.commit(id, exec(round), () => Promise.resolve(void done.push(round)));
  }
  assert.deepEqual(await readCommands(id), numbers(6));
  assert.deepEqual([...new Set(done)], numbers(6));
});

test('two writers that commit changes to one log at the same time both succeed', async () => {
  const id = ids[0] ?? '';
  const logs = [openLog(), openLog()];
  const rounds = numbers(4);
  await Promise.all(
    logs.flatMap((writer, index) =>
      rounds.map((round) => writer.commit(id, exec(`${index}.${round}`), () => Promise.resolve())),
    ),
  );
  const expected = logs.flatMap((_, index) => rounds.map((round) => `${index}.${round}`));
  assert.deepEqual(new Set(await readCommands(id)), new Set(expected));
});

test('a reader is woken for an entry that another control has written', async () => {
  const id = ids[0] ?? '';
  const here = openLog();
  await here.append(id, exec('0'));
  let news = 0;
  using _watch = here.watch(id, () => (news += 1));
  using _elsewhere = new EntriesElsewhere({ db, audit: here, log: pino({ level: 'silent' }) }, 20);
  await waitFor('the first look', () => news === 1);
  await openLog().append(id, exec('1'));
  await waitFor('the entry', () => news === 2);
  assert.deepEqual(await readCommands(id), ['0', '1']);
});
