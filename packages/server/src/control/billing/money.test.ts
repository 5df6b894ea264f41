/**
 * Billing against a slow exact model: history, usage and statements agree with it whatever happens to sandboxes, clocks
 * and hosts.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import type { HistoryRecord, Statement, UsageRecord } from '@coppice/contract';
import type { NewSandboxRow } from '../sandbox/record/sandbox-tables.ts';
import { changeState } from '../sandbox/record/state-change.ts';
import { newSandboxId } from '../sandbox/record/ids.ts';
import { SandboxStore } from '../sandbox/record/sandbox-store.ts';
import { startHarness, type ControlHarness } from '../testing/control-harness.ts';
import { SimulatedLife, type LifeStep } from '../testing/simulated-life.ts';
import { billCents, countMs, type BilledLife } from '../testing/slow-bill.ts';

let harness: ControlHarness;
before(async () => {
  harness = await startHarness({ requestsPerSecond: 0 });
});
after(() => harness[Symbol.asyncDispose]());

const DAY_MS = 86_400_000;
const BEGINNING = Date.UTC(2025, 0, 28);

const step: fc.Arbitrary<LifeStep> = fc.oneof(
  fc.record({ do: fc.constant('run' as const), ms: fc.integer({ min: 0, max: 20 * DAY_MS }) }),
  fc.record({
    do: fc.constant('sleep' as const),
    ms: fc.integer({ min: 0, max: 40 * DAY_MS }),
    boots: fc.boolean(),
  }),
  fc.record({ do: fc.constant('sleep unseen' as const), ms: fc.integer({ min: 0, max: DAY_MS }) }),
  fc.record({
    do: fc.constant('set the clock' as const),
    ms: fc.integer({ min: -2 * DAY_MS, max: 2 * DAY_MS }),
  }),
);

const life = fc.record({
  startsMs: fc.integer({ min: 0, max: 10 * DAY_MS }),
  vcpus: fc.integer({ min: 1, max: 32 }),
  memMiB: fc.integer({ min: 128, max: 65_536 }),
  steps: fc.array(step, { maxLength: 8 }),
  end: fc.constantFrom('destroyed', 'destroyed asleep', 'lost', 'asleep'),
});

type Plan = typeof life extends fc.Arbitrary<infer T> ? T : never;

interface Organization {
  key: string;
  organizationId: string;
  teamId: string;
}

async function addOrganization(): Promise<Organization> {
  const key = await harness.addOrganization();
  await using db = harness.openDatabase();
  const found = await db
    .selectFrom('api_keys')
    .select(['organization_id', 'team_id'])
    .where('last4', '=', key.slice(-4))
    .orderBy('created_at', 'desc')
    .executeTakeFirstOrThrow();
  return { key, organizationId: found.organization_id, teamId: found.team_id };
}

function buildRow({ organizationId, teamId }: Organization, plan: Plan): NewSandboxRow {
  const createdAt = BEGINNING + plan.startsMs;
  return {
    id: newSandboxId(),
    organization_id: organizationId,
    team_id: teamId,
    image: 'coppice/base:1',
    region: 'us',
    vcpus: plan.vcpus,
    mem_mib: plan.memMiB,
    disk_mib: 1024,
    timeout_s: 0,
    labels: '{}',
    created_at: createdAt,
    last_active_at: createdAt,
    last_seen_at: createdAt,
    boot_id: SimulatedLife.bootId(0),
    created_boot_ms: 1_000_000,
    last_seen_boot_ms: 1_000_000,
  };
}

/** Carries out a plan in the database, with the statements of the service. */
async function liveThrough(store: SandboxStore, organization: Organization, plan: Plan): Promise<BilledLife> {
  const [created] = await store.insert([buildRow(organization, plan)], () => undefined);
  assert.ok(created);
  const row = await store.update(created, changeState(created.status, 'started'));
  const simulated = new SimulatedLife(row, (from, change) => store.update(from, change));
  for (const one of plan.steps) await simulated.live(one);
  if (plan.end === 'destroyed asleep' || plan.end === 'asleep') await simulated.hibernate();
  if (plan.end === 'lost') await simulated.lose(12_345);
  if (plan.end.startsWith('destroyed')) await simulated.destroy();
  return { vcpus: plan.vcpus, memMiB: plan.memMiB, runs: simulated.runs };
}

async function get<T>(path: string, apiKey: string): Promise<T> {
  const answer = await harness.call('GET', path, { apiKey });
  assert.equal(answer.status, 200, JSON.stringify(answer.body));
  return answer.body as T;
}

/** Lists the months that the runs touch. */
function listMonths(lives: readonly BilledLife[]): string[] {
  const months = new Set<string>();
  for (const { runs } of lives)
    for (const { from, to } of runs)
      for (let at = from; at < to + DAY_MS; at += DAY_MS)
        months.add(new Date(Math.min(at, to)).toISOString().slice(0, 7));
  return [...months];
}

async function checkAgreement(organization: Organization, plans: readonly Plan[]): Promise<void> {
  const lives: BilledLife[] = [];
  {
    await using db = harness.openDatabase();
    const store = new SandboxStore(db);
    for (const plan of plans) lives.push(await liveThrough(store, organization, plan));
  }
  const { key } = organization;
  const isLive = plans.map((plan) => plan.end === 'asleep');
  const usage = await get<UsageRecord>('/v1/usage', key);
  assert.equal(usage.total_cost_cents, billCents(lives));
  assert.equal(usage.active_cost_cents, billCents(lives.filter((_, index) => isLive[index] === true)));
  assert.equal(usage.history_cost_cents, billCents(lives.filter((_, index) => isLive[index] === false)));
  const history = await get<HistoryRecord[]>('/v1/runs/history?limit=500', key);
  assert.equal(history.length, usage.history_sandboxes);
  const asLives = history.map(({ vcpus, mem_mib, billed_ms }) => ({
    vcpus,
    memMiB: mem_mib,
    runs: [{ from: 0, to: billed_ms }],
  }));
  assert.equal(billCents(asLives), usage.history_cost_cents);
  for (const entry of history) {
    const one = { vcpus: entry.vcpus, memMiB: entry.mem_mib, runs: [{ from: 0, to: entry.billed_ms }] };
    assert.equal(entry.cost_cents, billCents([one]));
    assert.ok(entry.billed_ms <= entry.uptime_ms);
  }
  let statedMs = 0;
  for (const month of listMonths(lives)) {
    const statement = await get<Statement>(`/v1/statements/${month}?limit=1000`, key);
    assert.equal(statement.cost_cents, billCents(lives, month), month);
    statedMs += statement.lines.reduce((sum, line) => sum + line.billed_ms, 0);
  }
  assert.equal(
    statedMs,
    lives.reduce((sum, { runs }) => sum + countMs(runs), 0),
  );
}

test('history, usage and statements equal the exact bill, across hibernation, loss, clock steps, boots and months', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(life, { minLength: 1, maxLength: 4 }), async (plans) =>
      checkAgreement(await addOrganization(), plans),
    ),
    { numRuns: 25 },
  );
});
