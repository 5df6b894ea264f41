/** Credit and budgets that two controls compare at the same time. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import pino from 'pino';
import { insertSandbox } from '../testing/sandbox-row.ts';
import { startTwoLeases, type TwoLeases } from '../testing/controls/two-leases.ts';
import { SYSTEM_CLOCK } from '../time/clock.ts';
import { waitFor } from '../testing/control-harness.ts';
import { BudgetKeeper } from './budgets/budget-keeper.ts';
import { BudgetStore } from './budgets/budget-store.ts';
import { setExhausted } from './credit/credit-store.ts';
import { monthAt } from './months/month.ts';

const HOUR_MS = 3_600_000;
const log = pino({ level: 'silent' });

let controls: TwoLeases;
beforeEach(async () => (controls = await startTwoLeases()));
afterEach(() => controls[Symbol.asyncDispose]());

test('of controls that find credit exhausted, or restored, at the same time one notes it', async () => {
  const note = (at: number | null): Promise<boolean[]> =>
    Promise.all(
      Array.from({ length: 4 }, () => setExhausted(controls.db, controls.owner.organizationId, at)),
    );
  for (const at of [Date.now(), null, Date.now()]) {
    const changed = await note(at);
    assert.equal(changed.filter(Boolean).length, 1, `${at}`);
  }
});

async function setBudget(): Promise<void> {
  const { organizationId } = controls.owner;
  const month = monthAt(Date.now());
  const row = { organization_id: organizationId, scope: 'organization', team_id: null, month_cents: 1 };
  await new BudgetStore(controls.db).put(
    { ...row, alert_percents: [50, 100], updated_at: month.from },
    month.name,
  );
}

/** A sandbox that has run for hours of this month, or since its begin. */
async function spend(): Promise<void> {
  const { organizationId: organization_id, teamId: team_id } = controls.owner;
  const id = 'run00000000000000000001';
  await insertSandbox(controls.db, { id, organization_id, team_id, vcpus: 64, status: 'hibernated' });
  const to = Date.now();
  await controls.db
    .insertInto('billing_segments')
    .values({
      sandbox_id: id,
      organization_id,
      team_id,
      vcpus: 64,
      mem_mib: 524_288,
      started_at: to - HOUR_MS,
      ended_at: to,
    })
    .execute();
}

const listAlerts = async (): Promise<number> =>
  (await controls.db.selectFrom('budget_alerts').selectAll().execute()).length;
const listEvents = async (): Promise<number> =>
  (await controls.db.selectFrom('pending_events').where('type', '=', 'budget.reached').selectAll().execute())
    .length;

function openKeeper(isLeading: boolean): BudgetKeeper {
  const parts = { db: controls.db, leadership: { isLeading }, clock: SYSTEM_CLOCK, intervalMs: 50 };
  return new BudgetKeeper({ ...parts, onEvent: () => undefined, log });
}

test('two controls that compare a budget at the same time make one alert for each percentage', async () => {
  await setBudget();
  await spend();
  const keepers = [openKeeper(true), openKeeper(true), openKeeper(false)];
  for (const keeper of keepers) {
    keeper.start();
    keeper.wake(controls.owner.organizationId);
  }
  await waitFor('the alerts', async () => (await listAlerts()) === 2);
  for (const keeper of keepers) await keeper[Symbol.asyncDispose]();
  assert.equal(await listEvents(), 2);
});

test('a control that does not lead compares the budgets that were changed there, and no others', async () => {
  await setBudget();
  await spend();
  await using keeper = openKeeper(false);
  keeper.start();
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal(await listAlerts(), 0);
  keeper.wake(controls.owner.organizationId);
  await waitFor('the alerts', async () => (await listAlerts()) === 2);
});
