import {
  readArray,
  readFlag,
  readNumber,
  readObject,
  readOptionalNumber,
  readOptionalString,
  readString,
} from '../transport/wire.ts';

/** A URL to which the service sends events of your organization. */
export interface WebhookInfo {
  /** Id of the webhook. */
  id: string;
  url: string;
  /** Types of events that are sent. Empty: all. */
  types: string[];
  description: string;
  /** False if nothing is sent. */
  enabled: boolean;
  /** Why the service has disabled it: `failing`, `gone` or `backlog`. Null if it has not. */
  disabledReason: string | null;
  /** Time of the first failure since the last success. Null while deliveries succeed. */
  failingSince: string | null;
  /** Until when the secret before the last rotation signs, too. Null if it does not. */
  oldSecretUntil: string | null;
  /** Time of the create. */
  createdAt: string;
}

/** A webhook with its secret, which the service shows once. */
export interface CreatedWebhook extends WebhookInfo {
  /** `whsec_…`; verifies the messages: see {@link verifyWebhook}. */
  secret: string;
}

/** One attempt to deliver a message. */
export interface DeliveryAttempt {
  /** Number of the attempt, from 1. */
  attempt: number;
  startedAt: string;
  durationMs: number;
  /** HTTP status of the answer. Null without an answer. */
  status: number | null;
  /** Why it has failed. Null if it has not. */
  error: string | null;
  /** The first kilobyte of the answer. */
  response: string;
}

/** A message of a webhook, and what became of it. */
export interface DeliveryInfo {
  /** The header `webhook-id`. */
  id: string;
  /** Id of the event. Null for a test. */
  eventId: number | null;
  type: string;
  /** `failed`: the service makes no other attempt by itself. */
  state: 'pending' | 'delivered' | 'failed';
  createdAt: string;
  nextAttemptAt: string | null;
  /** The last ten. */
  attempts: DeliveryAttempt[];
}

/** Parses a webhook from its wire form. Throws `TypeError` for another shape. */
export function parseWebhook(value: unknown): WebhookInfo {
  const record = readObject(value, 'the webhook');
  return {
    id: readString(record, 'id'),
    url: readString(record, 'url'),
    types: readArray(record['types'], 'types', (type) => String(type)),
    description: readString(record, 'description'),
    enabled: readFlag(record, 'enabled'),
    disabledReason: readOptionalString(record, 'disabled_reason'),
    failingSince: readOptionalString(record, 'failing_since'),
    oldSecretUntil: readOptionalString(record, 'old_secret_until'),
    createdAt: readString(record, 'created_at'),
  };
}

/** Parses a webhook with its secret. Throws `TypeError` for another shape. */
export function parseCreatedWebhook(value: unknown): CreatedWebhook {
  return { ...parseWebhook(value), secret: readString(readObject(value, 'the webhook'), 'secret') };
}

/** Parses a delivery from its wire form. Throws `TypeError` for another shape. */
export function parseDelivery(value: unknown): DeliveryInfo {
  const record = readObject(value, 'the delivery');
  return {
    id: readString(record, 'id'),
    eventId: readOptionalNumber(record, 'event_id'),
    type: readString(record, 'type'),
    state: readString(record, 'state') as DeliveryInfo['state'],
    createdAt: readString(record, 'created_at'),
    nextAttemptAt: readOptionalString(record, 'next_attempt_at'),
    attempts: readArray(record['attempts'], 'attempts', parseAttempt),
  };
}

function parseAttempt(value: unknown): DeliveryAttempt {
  const record = readObject(value, 'the attempt');
  return {
    attempt: readNumber(record, 'attempt'),
    startedAt: readString(record, 'started_at'),
    durationMs: readNumber(record, 'duration_ms'),
    status: readOptionalNumber(record, 'status'),
    error: readOptionalString(record, 'error'),
    response: readString(record, 'response'),
  };
}
