import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Database } from '../db/database.ts';
import type { EventRow } from '../events/event-tables.ts';
import { DeliveryFanOut } from './delivery-fan-out.ts';
import type { DeliveryStore } from './delivery-store.ts';
import type { WebhookStore } from './webhook-store.ts';

const HOOK = { id: 'hook1', organization_id: 'org1', types: [] };

/** A webhook, and the backlog of its deliveries. */
class Hook {
  waiting = 0;
  counts = 0;
  disabled = 0;
  crowds: string[] = [];
  readonly #fanOut: DeliveryFanOut;

  constructor() {
    const deliveries = {
      within: () => deliveries,
      countPending: async () => {
        this.counts += 1;
        return this.waiting;
      },
      insert: async (rows: unknown[]) => void (this.waiting += rows.length),
    };
    const webhooks = {
      within: () => webhooks,
      listEnabled: async () => [HOOK],
      disable: async () => void (this.disabled += 1),
    };
    this.#fanOut = new DeliveryFanOut({
      webhooks: webhooks as unknown as WebhookStore,
      deliveries: deliveries as unknown as DeliveryStore,
      clock: { wallMs: () => 0 },
      onDelivery: () => undefined,
      onCrowd: (id) => this.crowds.push(id),
    });
  }

  async take(count: number): Promise<void> {
    const rows = Array.from({ length: count }, (_, id) => {
      const row = { id, organization_id: 'org1', type: 'credit.exhausted', at: 0, labels: {}, data: '{}' };
      return row as EventRow;
    });
    await this.#fanOut.take(undefined as unknown as Database, rows);
    this.#fanOut.committed();
  }
}

test('a backlog is counted rarely, and disables its webhook when it is too long', async () => {
  const hook = new Hook();
  for (let n = 0; n < 9_900; n += 10) await hook.take(10);
  assert.ok(hook.counts <= 2, `${hook.counts} counts`);
  for (let n = 0; n < 200 && hook.disabled === 0; n += 1) await hook.take(10);
  assert.deepEqual([hook.disabled, hook.waiting >= 10_000, hook.waiting <= 11_000], [1, true, true]);
  // Enabled again: it may become faster, or is disabled once more.
  for (let n = 0; n < 50; n += 1) await hook.take(10);
  assert.equal(hook.disabled, 1);
  for (let n = 0; n < 100; n += 1) await hook.take(10);
  assert.equal(hook.disabled, 2);
});

test('after each five thousand deliveries old ones are deleted', async () => {
  const hook = new Hook();
  for (let n = 0; n < 11; n += 1) {
    hook.waiting = 0;
    await hook.take(1_000);
  }
  assert.deepEqual(hook.crowds, ['hook1', 'hook1']);
});
