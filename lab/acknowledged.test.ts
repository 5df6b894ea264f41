import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { Coppice } from '../packages/sdk/src/index.ts';
import { checkAcknowledged } from './acknowledged.ts';
import { Ledger } from './ledger.ts';
import { Results } from './results.ts';

const SECRET = 'cts_secret';
const ID = 'run0123456789abcdef0123';
const AT = '2026-01-01T00:00:00.000Z';
const RECORD = {
  id: ID,
  status: 'hibernated',
  team_id: 'team0',
  image: 'coppice/base:1',
  region: 'us',
  vcpus: 1,
  mem_mib: 256,
  disk_mib: 256,
  create_ms: 1,
  created_at: AT,
  ended_at: null,
  hibernated_at: AT,
  timeout: 0,
  expires_at: null,
  max_lifetime: null,
  auto_hibernate: false,
  labels: {},
  parent_id: null,
  audit_key_id: 'ask0',
  status_reason: null,
  operation: null,
};
const SNAPSHOT = {
  id: 'snap0',
  run_id: ID,
  name: null,
  image: RECORD.image,
  vcpus: 1,
  mem_mib: 256,
  disk_mib: 256,
  size_bytes: 1,
  bound_to: {},
  created_at: AT,
};
const BILL = {
  ...RECORD,
  status: 'destroyed',
  destroyed_at: AT,
  uptime_ms: 1,
  billed_ms: 1,
  cpu_ms: 1,
  mem_peak_bytes: 1,
  cost_cents: 5,
};

const DISK_SNAPSHOT = { name: 'token', disk: 'lab', size_gb: 1, version: 2, created_at: AT };

function buildLog(commands: readonly string[]): string[] {
  let previous = `coppice-audit-v1:${ID}`;
  return commands.map((command, index) => {
    // Keys in the order of RFC 8785.
    const entry = {
      data: { command },
      event: 'exec.exit',
      sandbox_id: ID,
      seq: index + 1,
      ts: AT,
    };
    previous = `sha256:${createHmac('sha256', SECRET)
      .update(`${previous}\n${JSON.stringify(entry)}`)
      .digest('hex')}`;
    return JSON.stringify({ ...entry, hmac: previous });
  });
}

/** The data that the service has after a boot. */
interface Kept {
  status: string;
  snapshots: object[];
  diskSnapshots: object[];
  bills: object[];
  log: string[];
  keys: string[];
  accounts: string[];
}

const LOG = buildLog(['first', 'last']);
const WHOLE: Kept = {
  status: 'hibernated',
  snapshots: [SNAPSHOT],
  diskSnapshots: [DISK_SNAPSHOT],
  bills: [BILL],
  log: LOG,
  keys: ['good'],
  accounts: ['a@lab.example'],
};

function answer(kept: Kept, url: string): Response {
  const { pathname } = new URL(url);
  if (pathname.endsWith('/audit')) return new Response(kept.log.map((line) => `${line}\n`).join(''));
  if (pathname === '/v1/snapshots') return Response.json(kept.snapshots);
  if (pathname === '/v1/disks/lab/snapshots') return Response.json(kept.diskSnapshots);
  if (pathname === '/v1/runs/history') return Response.json(kept.bills);
  return Response.json({ ...RECORD, status: kept.status });
}

/** Returns the names of the checks that fail when the service has the changed data. */
async function findLost(context: TestContext, change: Partial<Kept>): Promise<string[]> {
  const kept = { ...WHOLE, ...change };
  const directory = mkdtempSync(join(tmpdir(), 'lab-test-'));
  context.after(() => rmSync(directory, { recursive: true }));
  const ledger = new Ledger(directory);
  const head = JSON.parse(LOG[0] ?? '') as { seq: number; hmac: string };
  Object.assign(ledger.acknowledged, {
    asleep: { id: ID, token: 't' },
    snapshot: { id: SNAPSHOT.id, runId: ID, token: 't' },
    logs: { [ID]: { commands: ['last'], head: { seq: head.seq, hmac: head.hmac } } },
    bills: { [ID]: 5 },
    keys: { good: { id: 'key0', isGood: true }, revoked: { id: 'key1', isGood: false } },
    accounts: { 'a@lab.example': 'password' },
    diskSnapshots: { token: { token: 'token', sum: 'sum' } },
  });
  const client = new Coppice({ apiKey: 'k', maxRetries: 0, fetch: async (url) => answer(kept, url) });
  const service = { client, acceptsKey: async (key: string) => kept.keys.includes(key) };
  const owner = {
    readAuditSecret: async () => SECRET,
    assertAccount: async (email: string) => assert.ok(kept.accounts.includes(email)),
  };
  const results = new Results(directory, 'power-cuts');
  await checkAcknowledged({ service, signIn: async () => owner, ledger, results });
  const lines = readFileSync(join(directory, 'results.ndjson'), 'utf8').trimEnd().split('\n');
  const told = lines.map((line) => JSON.parse(line) as { name: string; ok: boolean });
  assert.equal(told.length, 6);
  return told.filter(({ ok }) => !ok).map(({ name }) => name);
}

test('no check fails when all acknowledged data is there', async (context) => {
  assert.deepEqual(await findLost(context, {}), []);
});

const LOSSES: Record<string, { change: Partial<Kept>; found: RegExp }> = {
  'a hibernation': { change: { status: 'failed' }, found: /hibernation and snapshot/u },
  'a snapshot': { change: { snapshots: [] }, found: /hibernation and snapshot/u },
  'a snapshot of a disk': { change: { diskSnapshots: [] }, found: /snapshots of the disk/u },
  'a new key': { change: { keys: [] }, found: /keys/u },
  'that a key was revoked': { change: { keys: ['good', 'revoked'] }, found: /keys/u },
  'an account': { change: { accounts: [] }, found: /accounts/u },
  'a bill': { change: { bills: [] }, found: /bills/u },
  'the sum of a bill': { change: { bills: [{ ...BILL, cost_cents: 4 }] }, found: /bills/u },
  'the last audit entry': { change: { log: LOG.slice(0, 1) }, found: /audit logs/u },
  'all of an audit log': { change: { log: [] }, found: /audit logs/u },
  'the truth of an audit log': {
    change: { log: [LOG[0] ?? '', (LOG[1] ?? '').replace('last', 'lost')] },
    found: /audit logs/u,
  },
};

for (const [what, { change, found }] of Object.entries(LOSSES)) {
  test(`the loss of ${what} is found`, async (context) => {
    const lost = await findLost(context, change);
    assert.equal(lost.length, 1);
    assert.match(lost[0] ?? '', found);
  });
}
