/** Tables of webhooks. Times are Unix milliseconds. */
import type { DeliveryState, DisabledReason, EventType } from '@coppice/contract';
import type { Generated, Selectable, Updateable } from 'kysely';

export interface WebhookTable {
  id: string;
  organization_id: string;
  url: string;
  /** Empty for all. */
  types: EventType[];
  description: string;
  enabled: boolean;
  disabled_reason: Generated<DisabledReason | null>;
  /** The first failure since the last success. */
  failing_since: Generated<number | null>;
  sealed_secret: Buffer;
  /** Signs, too, until `old_secret_until`. */
  sealed_old_secret: Generated<Buffer | null>;
  old_secret_until: Generated<number | null>;
  created_at: number;
}

export interface WebhookDeliveryTable {
  id: string;
  webhook_id: string;
  /** Null for a test. */
  event_id: number | null;
  type: string;
  /** The body, as it is signed and sent in every attempt. */
  payload: string;
  state: DeliveryState;
  /** Attempts so far. */
  attempts: Generated<number>;
  /** Attempts after the last one that was asked for, which decide how long the next one waits. */
  tries: Generated<number>;
  /** Null unless it is pending. */
  next_at: number | null;
  created_at: number;
}

export interface WebhookAttemptTable {
  delivery_id: string;
  attempt: number;
  started_at: number;
  duration_ms: number;
  status: number | null;
  error: string | null;
  response: string;
}

export type WebhookRow = Selectable<WebhookTable>;
export type WebhookUpdate = Updateable<WebhookTable>;
export type DeliveryRow = Selectable<WebhookDeliveryTable>;
export type AttemptRow = Selectable<WebhookAttemptTable>;
