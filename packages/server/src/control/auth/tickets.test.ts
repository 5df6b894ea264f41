/** Tickets by themselves; over HTTP they are in http/sessions.test.ts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Tickets } from './tickets.ts';

const RUN = `run${'1'.repeat(20)}`;
const HOLDER = { sandboxId: RUN, apiKeyId: 'key1' };
const refused = (pattern: RegExp) => ({ code: 'unauthorized', message: pattern });

function newTickets() {
  const time = { now: 1_700_000_000_000 };
  const nonces = new Set<string>();
  const used = {
    add: (nonce: string) => Promise.resolve(!nonces.has(nonce) && nonces.add(nonce).has(nonce)),
  };
  return { time, nonces, tickets: new Tickets(Buffer.alloc(32, 7), used, () => time.now) };
}

test('a ticket is redeemed once, for its sandbox, before it expires', async () => {
  const { time, tickets } = newTickets();
  const { ticket } = tickets.issue(HOLDER, 60);
  await assert.rejects(tickets.redeem(ticket, `run${'2'.repeat(20)}`), refused(/not one for this sandbox/u));
  assert.deepEqual(await tickets.redeem(ticket, RUN), HOLDER);
  await assert.rejects(tickets.redeem(ticket, RUN), refused(/used before/u));
  const { ticket: late } = tickets.issue(HOLDER, 60);
  time.now += 60_000;
  await assert.rejects(tickets.redeem(late, RUN), refused(/has expired/u));
});

test('a forged ticket and one that has expired are not noted as used', async () => {
  const { time, nonces, tickets } = newTickets();
  const { ticket } = tickets.issue(HOLDER, 60);
  const [payload = '', mac = ''] = ticket.split('.');
  const forged = [`${payload}.${'A'.repeat(mac.length)}`, `${payload}A.${mac}`, payload, '', 'x.y.z'];
  for (const one of forged)
    await assert.rejects(tickets.redeem(one, RUN), refused(/not one for this sandbox/u));
  time.now += 60_000;
  await assert.rejects(tickets.redeem(ticket, RUN), refused(/has expired/u));
  assert.equal(nonces.size, 0);
});
