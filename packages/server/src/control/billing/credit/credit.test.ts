/** Credit that is spent, and the effect on an organization that has none left. */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { AppError } from '@coppice/contract';
import type { ControlLimits } from '../../control-config.ts';
import {
  prepareHarness,
  waitFor,
  type ControlHarness,
  type CallOptions,
} from '../../testing/control-harness.ts';
import { grantCredit } from './credit-store.ts';

const HOUR_MS = 3_600_000;
const WELCOME_CENTS = 5000;

async function startWith(creditCents: number, limits: Partial<ControlLimits> = {}): Promise<ControlHarness> {
  const harness = await prepareHarness({ accountIntervalMs: 50, creditGraceMs: 0, ...limits });
  await harness.runner.start();
  await harness.startControl({ creditCents });
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
  return harness;
}

let harness: ControlHarness;
before(async () => {
  harness = await startWith(WELCOME_CENTS);
});
after(() => harness[Symbol.asyncDispose]());
afterEach(() => harness.runner.captures.reset());

const post = (path: string, body: unknown, options: CallOptions = {}) =>
  harness.call('POST', path, { body, ...options });

interface Customer {
  apiKey: string;
  organizationId: string;
  create: (more?: object) => Promise<string>;
  leftCents: () => Promise<number>;
}

async function addCustomer(): Promise<Customer> {
  const apiKey = await harness.addOrganization();
  const create = async (more: object = {}) => {
    const answer = await post('/v1/runs', { image: 'node:22-slim', ...more }, { apiKey });
    assert.equal(answer.status, 201, JSON.stringify(answer.body));
    return String(answer.body.id);
  };
  const leftCents = async () => (await harness.call('GET', '/v1/usage', { apiKey })).body.credit_left_cents;
  await using db = harness.openDatabase();
  const { id: organizationId } = await db
    .selectFrom('organizations')
    .select('id')
    .where('name', '=', `org ${apiKey.slice(-10)}`)
    .executeTakeFirstOrThrow();
  return { apiKey, organizationId, create, leftCents };
}

async function grant({ organizationId }: Customer, cents: number): Promise<void> {
  await using db = harness.openDatabase();
  await grantCredit(db, { organizationId, cents, note: 'of a test' });
}

const statusOf = async (id: string, { apiKey }: Customer) =>
  (await harness.call('GET', `/v1/runs/${id}`, { apiKey })).body.status;

test('a new organization has credit, which its running sandboxes spend by the millisecond', async () => {
  const customer = await addCustomer();
  assert.equal(await customer.leftCents(), WELCOME_CENTS);
  const id = await customer.create();
  const before = await customer.leftCents();
  await waitFor('time to pass', async () => (await customer.leftCents()) < before);
  const { body } = await harness.call('DELETE', `/v1/runs/${id}`, { apiKey: customer.apiKey });
  assert.ok(Math.abs((await customer.leftCents()) - (WELCOME_CENTS - body.cost_cents)) < 1e-9);
});

test('without credit no sandbox starts and running ones are hibernated; with more credit they can resume', async () => {
  const customer = await addCustomer();
  const { apiKey } = customer;
  const ids = await Promise.all(Array.from({ length: 6 }, () => customer.create({ auto_hibernate: false })));
  const [id = ''] = ids;
  const snapshot = await post(`/v1/runs/${id}/snapshot`, {}, { apiKey });
  await grant(customer, -WELCOME_CENTS);
  for (const one of ids)
    await waitFor(`${one} to be hibernated`, async () => (await statusOf(one, customer)) === 'hibernated');
  const refusals = [
    await post('/v1/runs', { image: 'node:22-slim' }, { apiKey }),
    await post('/v1/runs/restore', { snapshot_id: snapshot.body.id }, { apiKey }),
    await post(`/v1/runs/${id}/resume`, {}, { apiKey }),
  ];
  for (const { status, body } of refusals)
    assert.deepEqual([status, body.error.code], [402, 'credit_exhausted'], JSON.stringify(body));
  assert.ok((await customer.leftCents()) < 0);
  await grant(customer, 100);
  assert.equal((await post(`/v1/runs/${id}/resume`, {}, { apiKey })).status, 200);
  assert.equal(await statusOf(id, customer), 'running');
});

test('a running sandbox may be used until the grace is over, but not forked', async () => {
  await using patient = await startWith(WELCOME_CENTS, { creditGraceMs: HOUR_MS });
  const { id } = await patient.create();
  {
    await using db = patient.openDatabase();
    const { id: organizationId } = await db
      .selectFrom('organizations')
      .select('id')
      .executeTakeFirstOrThrow();
    await grantCredit(db, { organizationId, cents: -WELCOME_CENTS, note: '' });
    await waitFor('it to be noticed', async () => {
      const row = await db.selectFrom('billing_accounts').select('exhausted_at').executeTakeFirst();
      return typeof row?.exhausted_at === 'number';
    });
    const exec = await patient.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'true' } });
    assert.equal(exec.status, 200);
    const fork = await patient.call('POST', `/v1/runs/${id}/fork`, { body: { count: 2 } });
    assert.deepEqual([fork.status, fork.body.error.code], [402, 'credit_exhausted']);
    await grantCredit(db, { organizationId, cents: 1, note: '' });
    await waitFor('it to be forgotten', async () => {
      const row = await db.selectFrom('billing_accounts').select('exhausted_at').executeTakeFirst();
      return row?.exhausted_at === null;
    });
  }
  assert.equal((await patient.call('GET', `/v1/runs/${id}`)).body.status, 'running');
});

test('a sandbox does not wake by itself without credit', async () => {
  const customer = await addCustomer();
  const { apiKey } = customer;
  const id = await customer.create({ auto_hibernate: true });
  await post(`/v1/runs/${id}/hibernate`, {}, { apiKey });
  await grant(customer, -WELCOME_CENTS);
  const refused = await post(`/v1/runs/${id}/exec`, { command: 'true' }, { apiKey });
  assert.deepEqual([refused.status, refused.body.error.code], [402, 'credit_exhausted']);
  assert.equal(await statusOf(id, customer), 'hibernated');
});

test('a failed hibernation is retried, and a sandbox never has two at once', async () => {
  const customer = await addCustomer();
  const id = await customer.create();
  let attempts = 0;
  harness.runner.captures.onHibernate = () => {
    attempts += 1;
    if (attempts < 3) throw new AppError('capacity', "the host's disk has no room");
  };
  await grant(customer, -WELCOME_CENTS);
  await waitFor('it to be hibernated', async () => (await statusOf(id, customer)) === 'hibernated');
  assert.equal(attempts, 3);
});

test('a refusal for lack of credit is not stored under an Idempotency-Key', async () => {
  const customer = await addCustomer();
  const options = { apiKey: customer.apiKey, headers: { 'idempotency-key': 'once' } };
  assert.equal(await customer.leftCents(), WELCOME_CENTS);
  await grant(customer, -WELCOME_CENTS);
  assert.equal((await post('/v1/runs', { image: 'node:22-slim' }, options)).status, 402);
  await grant(customer, 1);
  assert.equal((await post('/v1/runs', { image: 'node:22-slim' }, options)).status, 201);
});

test('turning credit on later does not charge earlier use', async () => {
  await using later = await startWith(0);
  await later.stopControl();
  await later.startControl();
  await later.create();
  const free = await later.call('GET', '/v1/usage');
  assert.equal(free.body.credit_cents, undefined);
  {
    await using db = later.openDatabase();
    await db.deleteFrom('credit_grants').execute();
    await db
      .updateTable('sandboxes')
      .set((eb) => ({
        created_at: eb('created_at', '-', 1000 * HOUR_MS),
        created_boot_ms: eb('created_boot_ms', '-', 1000 * HOUR_MS),
      }))
      .execute();
  }
  await later.stopControl();
  await later.startControl({ creditCents: 100 });
  const { body } = await later.call('GET', '/v1/usage');
  assert.ok(body.total_cost_cents > 3999, `${body.total_cost_cents}`);
  assert.ok(body.credit_left_cents >= 99 && body.credit_left_cents <= 101, `${body.credit_left_cents}`);
});
