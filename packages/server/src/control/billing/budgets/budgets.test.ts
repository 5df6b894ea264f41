/** Budgets through the real API, and the events of those that are reached. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { BudgetRecord, EventRecord } from '@coppice/contract';
import { readOrganizationLog } from '../../testing/organization-log.ts';
import { AccountClient } from '../../testing/requests/account-client.ts';
import { listEvents } from '../../testing/requests/events-client.ts';
import { INVITATION, startHarness, waitFor, type ControlHarness } from '../../testing/control-harness.ts';
import { pino } from 'pino';
import { SYSTEM_CLOCK } from '../../time/clock.ts';
import { monthAt } from '../months/month.ts';
import { BudgetKeeper } from './budget-keeper.ts';

/** An hour of 1 vCPU and 1 GiB. */
const CENTS_PER_HOUR = 4;
const HOUR_MS = 3_600_000;

let harness: ControlHarness;
let owner: AccountClient;
before(async () => {
  harness = await startHarness({ accountIntervalMs: 20 });
  owner = await AccountClient.signUp(harness, { invitation: INVITATION });
});
after(() => harness[Symbol.asyncDispose]());

/** An organization of its own, with a key for all of it and one for its first team. */
class Customer {
  readonly person: AccountClient;
  readonly key: string;
  readonly teamKey: string;

  private constructor(person: AccountClient, { key, teamKey }: { key: string; teamKey: string }) {
    this.person = person;
    this.key = key;
    this.teamKey = teamKey;
  }

  static async add(name: string): Promise<Customer> {
    const person = await owner.addOrganization(name);
    const makeKey = async (limits: object): Promise<string> =>
      (await person.call('POST', `${person.team}/keys`, { name: 'a key', ...limits })).body.key;
    return new Customer(person, { key: await makeKey({}), teamKey: await makeKey({ team_only: true }) });
  }

  get id(): string {
    return this.person.organizationId;
  }

  async addTeam(): Promise<string> {
    return (await this.person.call('POST', `${this.person.organization}/teams`, { name: 'second' })).body.id;
  }

  put(scope: string, body: object, apiKey = this.key) {
    return harness.call('PUT', `/v1/budgets/${scope}`, { apiKey, body });
  }

  async set(scope: string, monthCents: number, percents?: number[]): Promise<BudgetRecord> {
    const alerts = percents === undefined ? {} : { alert_percents: percents };
    const answer = await this.put(scope, { month_cents: monthCents, ...alerts });
    assert.equal(answer.status, 200, JSON.stringify(answer.body));
    return answer.body;
  }

  async list(apiKey = this.key): Promise<BudgetRecord[]> {
    return (await harness.call('GET', '/v1/budgets', { apiKey })).body;
  }

  /** Adds an ended sandbox that ran for hours in this month, and in the next, in case this one ends during the test. */
  async spend(cents: number, teamId = this.person.teamId): Promise<void> {
    const keys = `${this.person.organization}/teams/${teamId}/keys`;
    const apiKey = (await this.person.call('POST', keys, { name: 'spends' })).body.key;
    const { body } = await harness.call('POST', '/v1/runs', { apiKey, body: { image: 'node:22-slim' } });
    await harness.call('DELETE', `/v1/runs/${body.id}`, { apiKey });
    await using db = harness.openDatabase();
    const { from, to } = monthAt(Date.now());
    const rows = [from, to].map((startedAt) => ({
      sandbox_id: String(body.id),
      organization_id: this.person.organizationId,
      team_id: teamId,
      vcpus: 1,
      mem_mib: 1024,
      started_at: startedAt,
      ended_at: startedAt + (cents / CENTS_PER_HOUR) * HOUR_MS,
    }));
    await db.transaction().execute(async (transaction) => {
      await transaction.deleteFrom('billing_segments').where('sandbox_id', '=', body.id).execute();
      await transaction.insertInto('billing_segments').values(rows).execute();
    });
  }

  alerts(): Promise<EventRecord[]> {
    return listEvents(harness, '?after=0&limit=500&type=budget.reached', { apiKey: this.key });
  }

  async waitForAlerts(count: number): Promise<[team: string | null, percent: unknown, cost: unknown][]> {
    await waitFor(`${count} alerts`, async () => (await this.alerts()).length >= count);
    return (await this.alerts()).map(({ team_id, data }) => [team_id, data['percent'], data['cost_cents']]);
  }
}

test('a budget is set, listed with the cost of the month, replaced and deleted', async () => {
  const customer = await Customer.add('lists');
  assert.deepEqual(await customer.list(), []);
  await customer.spend(40);
  const set = await customer.set('organization', 1000);
  const { month } = set;
  assert.match(month, /^\d{4}-\d\d$/u);
  assert.deepEqual(set, {
    scope: 'organization',
    month_cents: 1000,
    alert_percents: [50, 80, 100],
    month,
    cost_cents: 40,
    reached_percents: [],
    updated_at: set.updated_at,
  });
  const ofTeam = await customer.set(customer.person.teamId, 500, [90, 10, 90]);
  assert.deepEqual(ofTeam.alert_percents, [10, 90]);
  assert.deepEqual(await customer.list(), [set, ofTeam]);
  const replaced = await customer.set('organization', 2000, [100]);
  assert.deepEqual(
    (await customer.list()).map(({ month_cents, alert_percents }) => [month_cents, alert_percents]),
    [
      [2000, [100]],
      [500, [10, 90]],
    ],
  );
  assert.equal(replaced.month_cents, 2000);
  const path = '/v1/budgets/organization';
  assert.equal((await harness.call('DELETE', path, { apiKey: customer.key })).status, 204);
  const again = await harness.call('DELETE', path, { apiKey: customer.key });
  assert.deepEqual([again.status, again.body.error.code], [404, 'not_found']);
  assert.deepEqual(await customer.list(), [ofTeam]);
});

test('each part that is reached is one event, and another amount begins anew', async () => {
  const customer = await Customer.add('reaches');
  await customer.spend(80);
  await customer.set('organization', 100);
  assert.deepEqual(await customer.waitForAlerts(2), [
    [null, 50, 80],
    [null, 80, 80],
  ]);
  const [event] = await customer.alerts();
  assert.deepEqual(event?.data, {
    scope: 'organization',
    month: event?.data['month'],
    percent: 50,
    cost_cents: 80,
    month_cents: 100,
  });
  assert.deepEqual((await customer.list())[0]?.reached_percents, [50, 80]);

  await customer.set('organization', 100, [50, 80, 90, 100]);
  await customer.spend(10);
  assert.deepEqual((await customer.waitForAlerts(3)).slice(2), [[null, 90, 90]]);

  await customer.set('organization', 150);
  assert.deepEqual((await customer.waitForAlerts(4)).slice(3), [[null, 50, 90]]);
  assert.deepEqual((await customer.list())[0]?.reached_percents, [50]);
});

test("a team's budget counts the team alone, and a key of the team sees only that one", async () => {
  const customer = await Customer.add('teams');
  const other = await customer.addTeam();
  await customer.spend(60);
  await customer.spend(30, other);
  await customer.set('organization', 100, [100]);
  await customer.set(customer.person.teamId, 100, [60]);
  await customer.set(other, 100, [60]);
  await customer.waitForAlerts(1);
  await customer.spend(10, other);
  assert.deepEqual(await customer.waitForAlerts(2), [
    [customer.person.teamId, 60, 60],
    [null, 100, 100],
  ]);
  const costs = new Map((await customer.list()).map(({ scope, cost_cents }) => [scope, cost_cents]));
  const scopes = ['organization', customer.person.teamId, other];
  assert.deepEqual(
    scopes.map((scope) => costs.get(scope)),
    [100, 60, 40],
  );
  const seen = await customer.list(customer.teamKey);
  assert.deepEqual(
    seen.map(({ scope, cost_cents }) => [scope, cost_cents]),
    [[customer.person.teamId, 60]],
  );
  const refused = await customer.put(customer.person.teamId, { month_cents: 1 }, customer.teamKey);
  assert.deepEqual([refused.status, refused.body.error.code], [403, 'forbidden']);
});

test('a sandbox that runs counts up to now', async () => {
  const customer = await Customer.add('runs');
  // Of this size it costs the hundredth of a cent in 2.25 s.
  const body = { image: 'node:22-slim', vcpus: 4, mem_mib: 4096 };
  assert.equal((await harness.call('POST', '/v1/runs', { apiKey: customer.key, body })).status, 201);
  await customer.set('organization', 1, [1]);
  const [[, percent, cost] = []] = await customer.waitForAlerts(1);
  assert.equal(percent, 1);
  assert.ok(Number(cost) >= 0.01, String(cost));
});

test('a month is still compared in the first day after it, with the budgets that it had', async () => {
  const customer = await Customer.add('late');
  await customer.spend(70);
  await customer.set('organization', 100_000, [50]);
  await customer.set(customer.person.teamId, 100_000, [50]);
  await using db = harness.openDatabase();
  const next = monthAt(monthAt(Date.now()).to);
  const inMonthAfter = next.to + HOUR_MS;
  // Only the budget of the team was the same in the month that is compared.
  await db
    .updateTable('budgets')
    .set({ month_cents: 100 })
    .where('organization_id', '=', customer.id)
    .execute();
  await db
    .updateTable('budgets')
    .set({ updated_at: inMonthAfter })
    .where('organization_id', '=', customer.id)
    .where('scope', '=', 'organization')
    .execute();
  const clock = { ...SYSTEM_CLOCK, wallMs: () => inMonthAfter };
  const log = pino({ level: 'silent' });
  await using keeper = new BudgetKeeper({
    db,
    leadership: { isLeading: true },
    clock,
    intervalMs: HOUR_MS,
    onEvent: () => undefined,
    log,
  });
  keeper.start();
  const ofNext = () =>
    db
      .selectFrom('budget_alerts')
      .select(['scope', 'percent'])
      .where('organization_id', '=', customer.id)
      .where('month', '=', next.name)
      .execute();
  await waitFor('the alert', async () => (await ofNext()).length > 0);
  assert.deepEqual(await ofNext(), [{ scope: customer.person.teamId, percent: 50 }]);
});

test('bad input is refused by its field, and changes nothing', async () => {
  const customer = await Customer.add('refused');
  const stranger = await Customer.add('stranger');
  const refused: [scope: string, body: object, message: RegExp][] = [
    ['organization', {}, /^month_cents: is required/u],
    ['organization', { month_cents: 0 }, /^month_cents: must be a whole number from 1 to 100000000000/u],
    ['organization', { month_cents: 1.5 }, /^month_cents: must be a whole number/u],
    ['organization', { month_cents: 1, alert_percents: [] }, /^alert_percents: must be an array of 1 to 10/u],
    ['organization', { month_cents: 1, alert_percents: [0] }, /^alert_percents.*from 1 to 1000/u],
    ['organization', { month_cents: 1, limit: 2 }, /^limit: unknown field/u],
  ];
  for (const [scope, body, message] of refused) {
    const answer = await customer.put(scope, body);
    assert.deepEqual([answer.status, answer.body.error.code], [400, 'invalid_request'], JSON.stringify(body));
    assert.match(answer.body.error.message, message);
  }
  for (const scope of ['team-of-none', stranger.person.teamId]) {
    const answer = await customer.put(scope, { month_cents: 1 });
    assert.deepEqual([answer.status, answer.body.error.code], [404, 'not_found']);
    assert.match(answer.body.error.message, /^scope: the organization has no team/u);
  }
  assert.deepEqual(await customer.list(), []);
});

test('changes are in the log of the organization', async () => {
  const customer = await Customer.add('audited');
  await customer.set('organization', 700, [100]);
  await harness.call('DELETE', '/v1/budgets/organization', { apiKey: customer.key });
  const entries = await readOrganizationLog(harness, { apiKey: customer.key });
  assert.deepEqual(
    entries.flatMap(({ event, data }) => (event.startsWith('budget.') ? [[event, data]] : [])),
    [
      ['budget.set', { scope: 'organization', month_cents: 700, alert_percents: [100] }],
      ['budget.deleted', { scope: 'organization' }],
    ],
  );
});
