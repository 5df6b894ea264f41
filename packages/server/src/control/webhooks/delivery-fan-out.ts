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
/**
 * Deliveries that are made before those that wait are counted again: all events wait for the count, so it must be rare.
 */
const MIN_ALLOWANCE = 1_000;
const MAX_REMEMBERED = 10_000;
/** Deliveries after which old ones are deleted. */
const CROWD = 5_000;

export interface DeliveryFanOutParts {
  webhooks: WebhookStore;
  deliveries: DeliveryStore;
  clock: { wallMs: () => number };
  /** Called when there may be deliveries. */
  onDelivery: () => void;
  /** Called when a webhook may have too many deliveries that are over. */
  onCrowd: (webhookId: string) => void;
}

interface Made {
  /** How many may be made until they are counted. */
  allowance: number;
  /** Since old ones were last deleted. */
  sinceTrim: number;
}

export class DeliveryFanOut implements EventSubscriber {
  readonly #parts: DeliveryFanOutParts;
  /** By webhook. */
  readonly #made = new Map<string, Made>();
  #hasDeliveries = false;

  constructor(parts: DeliveryFanOutParts) {
    this.#parts = parts;
  }

  async take(transaction: Database, rows: readonly EventRow[]): Promise<void> {
    if (this.#made.size > MAX_REMEMBERED) this.#made.clear();
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
    for (const [id, made] of this.#made) {
      if (made.sinceTrim < CROWD) continue;
      made.sinceTrim = 0;
      this.#parts.onCrowd(id);
    }
  }

  /** Returns whether the webhook may get deliveries. Its backlog may exceed the limit by {@link MIN_ALLOWANCE}. */
  async #allow(deliveries: DeliveryStore, webhookId: string, count: number): Promise<boolean> {
    const made = this.#made.get(webhookId) ?? { allowance: MIN_ALLOWANCE, sinceTrim: 0 };
    this.#made.set(webhookId, made);
    const isDue = made.allowance <= 0;
    const waiting = isDue ? await deliveries.countPending(webhookId, MAX_PENDING) : 0;
    if (isDue) made.allowance = Math.max(MAX_PENDING - waiting, MIN_ALLOWANCE);
    // One that is enabled again has its allowance to become faster.
    if (waiting >= MAX_PENDING) return false;
    made.allowance -= count;
    made.sinceTrim += count;
    return true;
  }

  async #deliver(
    transaction: Database,
    webhook: { id: string; organization_id: string },
    events: readonly EventRow[],
  ): Promise<void> {
    const deliveries = this.#parts.deliveries.within(transaction);
    const now = this.#parts.clock.wallMs();
    if (!(await this.#allow(deliveries, webhook.id, events.length))) {
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
