import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, mock, test } from 'node:test';
import pino from 'pino';
import { hostMoment } from '../../lib/host-clock.ts';
import type { BlockServer } from './block-server.ts';
import { GuestHold } from './guest-hold.ts';
import { RunnerLease } from './runner-lease.ts';
import { until } from './testing/disk-site.ts';

const directory = mkdtempSync(join(tmpdir(), 'lease-'));
after(() => rmSync(directory, { recursive: true }));
const log = pino({ level: 'silent' });

function openLease(
  name: string,
  { renew, onDoubt = async () => undefined }: { renew: () => Promise<void>; onDoubt?: () => Promise<void> },
): { lease: RunnerLease; events: string[] } {
  const events: string[] = [];
  const server = { ask: mock.fn(renew) } as unknown as BlockServer;
  const lease = new RunnerLease({
    server,
    runner: 'runner-1',
    path: join(directory, name),
    isNeeded: () => true,
    onDoubt: async () => {
      events.push('doubt');
      await onDoubt();
    },
    onCertain: async () => void events.push('certain'),
    log,
  });
  return { lease, events };
}

function writeRenewed(name: string, agoMs: number): void {
  const { bootId, bootMs } = hostMoment();
  writeFileSync(join(directory, name), JSON.stringify({ boot_id: bootId, boot_ms: bootMs - agoMs }));
}

test('a lease of unknown age is in doubt at once, although the store does not answer', async () => {
  const { lease, events } = openLease('unknown', { renew: () => new Promise(() => undefined) });
  using _ = lease;
  lease.doubt();
  await until('the doubt', () => events.length > 0);
  assert.deepEqual(events, ['doubt']);
});

test('a lease that an earlier process renewed a moment ago holds no VM, and is checked', async () => {
  writeRenewed('recent', 3000);
  const { lease, events } = openLease('recent', { renew: async () => undefined });
  using _ = lease;
  lease.doubt();
  await until('the check', () => events.length > 0);
  assert.deepEqual(events, ['certain']);
});

test('a lease that was not renewed in time is in doubt, and a VM that cannot be held delays no renewal', async () => {
  writeRenewed('late', 41_000);
  const onDoubt = (): Promise<void> => Promise.reject(new Error('the VMM does not answer'));
  const { lease, events } = openLease('late', { renew: async () => undefined, onDoubt });
  using _ = lease;
  lease.doubt();
  await until('the renewal', () => events.includes('certain'));
  assert.deepEqual(events, ['doubt', 'certain']);
});

test('a guest is held while there is a reason, and an order that failed is repeated', async () => {
  const orders: string[] = [];
  let isFailing = true;
  const order = async (name: string): Promise<void> => {
    orders.push(name);
    if (isFailing) throw new Error('the VMM does not answer');
  };
  const guest = { hold: (reason: string) => order(reason), goOn: () => order('go on') };
  const hold = new GuestHold(() => guest);
  await assert.rejects(hold.add('full'));
  isFailing = false;
  await hold.add('full');
  await hold.add('doubt');
  await hold.delete('full');
  assert.equal(hold.reason, 'doubt');
  assert.deepEqual(orders, ['full', 'full']);
  isFailing = true;
  await assert.rejects(hold.delete('doubt'));
  isFailing = false;
  await hold.order();
  await hold.order();
  assert.deepEqual(orders.slice(2), ['go on', 'go on']);
});

test('a guest that joins while it must not run is held', async () => {
  const orders: string[] = [];
  let guest: { hold: (reason: string) => Promise<void>; goOn: () => Promise<void> } | undefined;
  const hold = new GuestHold(() => guest);
  await hold.add('doubt');
  guest = { hold: async (reason) => void orders.push(reason), goOn: async () => undefined };
  await hold.order();
  assert.deepEqual(orders, ['doubt']);
});
