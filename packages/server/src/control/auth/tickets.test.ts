/** Tickets by themselves; over HTTP they are in http/sessions.test.ts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ExpiringSet } from './expiring-set.ts';
import { Tickets } from './tickets.ts';

const RUN = `run${'1'.repeat(20)}`;
const HOLDER = { sandboxId: RUN, apiKeyId: 'key1' };
const refused = (pattern: RegExp) => ({ code: 'unauthorized', message: pattern });

function newTickets() {
  const time = { now: 1_700_000_000_000 };
  return { time, tickets: new Tickets(Buffer.alloc(32, 7), () => time.now) };
}

test('a ticket is redeemed once, for its sandbox, before it expires', () => {
  const { time, tickets } = newTickets();
  const { ticket } = tickets.issue(HOLDER, 60);
  assert.throws(() => tickets.redeem(ticket, `run${'2'.repeat(20)}`), refused(/not one for this sandbox/u));
  assert.deepEqual(tickets.redeem(ticket, RUN), HOLDER);
  assert.throws(() => tickets.redeem(ticket, RUN), refused(/used before/u));
  const { ticket: late } = tickets.issue(HOLDER, 60);
  time.now += 60_000;
  assert.throws(() => tickets.redeem(late, RUN), refused(/has expired/u));
});

test('a forged ticket does not touch the set of used tickets', (context) => {
  const { tickets } = newTickets();
  const { ticket } = tickets.issue(HOLDER, 60);
  const forget = context.mock.method(ExpiringSet.prototype, 'forget');
  const add = context.mock.method(ExpiringSet.prototype, 'add');
  const [payload = '', mac = ''] = ticket.split('.');
  const forged = [`${payload}.${'A'.repeat(mac.length)}`, `${payload}A.${mac}`, payload, '', 'x.y.z'];
  for (const one of forged)
    assert.throws(() => tickets.redeem(one, RUN), refused(/not one for this sandbox/u));
  assert.deepEqual([forget.mock.callCount(), add.mock.callCount()], [0, 0]);
  tickets.redeem(ticket, RUN);
  assert.deepEqual([forget.mock.callCount(), add.mock.callCount()], [1, 1]);
});
