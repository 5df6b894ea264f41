/**
 * Makes a delivery of each event for each webhook that wants it, in the transaction that numbers the event: no event is
 * delivered twice or not at all, whichever process dies.
 */
import { newId } from '../../lib/new-id.ts';
import type { Database } from '../db/database.ts';
import { buildEventRecord } from '../events/event-record.ts';
import type { EventSubscriber } from '../events/event-sequencer.ts';
import type { EventRow } from '../events/event-tables.ts';
import type { DeliveryStore } from './delivery-store.ts';
import type { WebhookStore } from './webhook-store.ts';

/** A webhook with more deliveries that wait is disabled: its receiver does not keep up. */
const MAX_PENDING = 10_000;

export interface DeliveryFanOutParts {
  webhooks: WebhookStore;
  deliveries: DeliveryStore;
  clock: { wallMs: () => number };
  /** Called when there may be deliveries. */
  onDelivery: () => void;
  maxPending?: number;
}

export class DeliveryFanOut implements EventSubscriber {
  readonly #parts: DeliveryFanOutParts;
  #hasDeliveries = false;

  constructor(parts: DeliveryFanOutParts) {
    this.#parts = parts;
  }

  async take(transaction: Database, rows: readonly EventRow[]): Promise<void> {
    const webhooks = this.#parts.webhooks.within(transaction);
    const wanted = await webhooks.listEnabled([...new Set(rows.map((row) => row.organization_id))]);
    for (const webhook of wanted) {
      const events = rows.filter(
        ({ organization_id, type }) =>
          organization_id === webhook.organization_id &&
          (webhook.types.length === 0 || webhook.types.includes(type)),
      );
      if (events.length > 0) await this.#deliver(transaction, webhook, events);
    }
  }

  committed(): void {
    if (this.#hasDeliveries) this.#parts.onDelivery();
    this.#hasDeliveries = false;
  }

  async #deliver(
    transaction: Database,
    webhook: { id: string; organization_id: string },
    events: readonly EventRow[],
  ): Promise<void> {
    const { maxPending = MAX_PENDING } = this.#parts;
    const deliveries = this.#parts.deliveries.within(transaction);
    const now = this.#parts.clock.wallMs();
    if ((await deliveries.countPending(webhook.id, maxPending)) >= maxPending) {
      await this.#parts.webhooks.within(transaction).disable(webhook, 'backlog', now);
      return;
    }
    await deliveries.insert(
      events.map((event) => ({
        id: newId('msg'),
        webhook_id: webhook.id,
        event_id: event.id,
        type: event.type,
        payload: JSON.stringify(buildEventRecord(event)),
        state: 'pending' as const,
        next_at: now,
        created_at: now,
      })),
    );
    this.#hasDeliveries = true;
  }
}
