/** Two controls that number the events of one database. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pino from 'pino';
import type { Leadership } from '../ownership/leadership.ts';
import { waitFor } from '../testing/control-harness.ts';
import { startTwoLeases, type TwoLeases } from '../testing/controls/two-leases.ts';
import { EventSequencer } from './event-sequencer.ts';
import { EventStore } from './event-store.ts';

const clock = { wallMs: () => Date.now() };
const DATA = {
  'budget.reached': JSON.stringify({
    scope: 'organization',
    month: '2026-11',
    percent: 50,
    cost_cents: 1,
    month_cents: 2,
  }),
  'network.blocked': JSON.stringify({ domain: 'example.com', port: 443, reason: 'policy' }),
};
const log = pino({ level: 'silent' });

let controls: TwoLeases;
beforeEach(async () => (controls = await startTwoLeases()));
afterEach(() => controls[Symbol.asyncDispose]());

function open(leadership: Leadership): EventSequencer {
  const sequencer = new EventSequencer({ db: controls.db, leadership, clock, log });
  sequencer.start();
  return sequencer;
}

async function insert(type: 'budget.reached' | 'network.blocked'): Promise<void> {
  const { organizationId: organization_id, teamId: team_id } = controls.owner;
  const row = { organization_id, team_id, sandbox_id: null, type, at: Date.now(), data: DATA[type] };
  await controls.db.insertInto('pending_events').values(row).execute();
}

async function listTypes(): Promise<string[]> {
  const reach = { organizationId: controls.owner.organizationId, onlyTeamId: null };
  const { records } = await new EventStore(controls.db, clock).listPage({ reach }, 0, 100);
  return records.map(({ type }) => type);
}

test('a reader at one control is woken for an event that another one has numbered', async () => {
  await using first = open({ isLeading: true });
  await using second = open({ isLeading: false });
  let news = 0;
  using _own = second.watch(controls.owner.organizationId, () => (news += 1));
  let strange = 0;
  using _other = second.watch('another organization', () => (strange += 1));
  await waitFor('the first look', () => news === 1);
  // The second one never finds it as pending: it is numbered in the transaction that writes it.
  for (let round = 2; round <= 3; round += 1) {
    await insert('budget.reached');
    first.wake();
    await waitFor('the event', () => news === round, 5_000);
  }
  assert.equal(strange, 1, 'only the first look wakes all');
});

test('refused connections are numbered by the control that leads, so that they are merged once', async () => {
  const leadership = { isLeading: false };
  await using sequencer = open(leadership);
  await insert('network.blocked');
  await insert('budget.reached');
  sequencer.wake();
  await waitFor('the other event', async () => (await listTypes()).length === 1);
  await delay(1_200);
  assert.deepEqual(await listTypes(), ['budget.reached']);
  leadership.isLeading = true;
  await waitFor('the refusal', async () => (await listTypes()).length === 2);
});
