/** Wire forms of webhooks, which follow the Standard Webhooks specification. */
import { z } from 'zod';
import { boundedInt, boundedIntText, boundedText, Timestamp } from '../fields.ts';
import { DISABLED_REASONS, EVENT_TYPES, RequestedEventType } from './events.ts';

const MAX_URL_BYTES = 2048;
const MAX_DESCRIPTION_BYTES = 256;
/** One week. */
const MAX_OVERLAP_S = 604_800;
const DAY_S = 86_400;
const MAX_LISTED = 500;

const types = z
  .array(RequestedEventType, { error: 'must be an array of types of events' })
  .max(EVENT_TYPES.length)
  .transform((types) => [...new Set(types)])
  .describe('Types of events that are delivered; an empty array stands for all.');
const url = boundedText(1, MAX_URL_BYTES).describe('https, except in networks that the operator has opened.');
const description = boundedText(0, MAX_DESCRIPTION_BYTES);
const enabled = z.boolean({ error: 'must be true or false' });

/** Body of `POST /v1/webhooks`. */
export const CreateWebhookRequest = z
  .strictObject({
    url,
    types: types.default([]),
    description: description.default(''),
    enabled: enabled.default(true),
  })
  .meta({ id: 'CreateWebhookRequest' });
export type CreateWebhookRequest = z.infer<typeof CreateWebhookRequest>;

/** Body of `PATCH /v1/webhooks/{id}`. */
export const PatchWebhookRequest = z
  .strictObject({
    url: url.optional(),
    types: types.optional(),
    description: description.optional(),
    enabled: enabled.optional(),
  })
  .meta({ id: 'PatchWebhookRequest' });
export type PatchWebhookRequest = z.infer<typeof PatchWebhookRequest>;

/** Body of `POST /v1/webhooks/{id}/rotate`. */
export const RotateWebhookRequest = z
  .strictObject({
    overlap_seconds: boundedInt(0, MAX_OVERLAP_S, 'seconds')
      .default(DAY_S)
      .describe('For this time deliveries are signed with the old secret, too.'),
  })
  .meta({ id: 'RotateWebhookRequest' });
export type RotateWebhookRequest = z.infer<typeof RotateWebhookRequest>;

export const WebhookRecord = z
  .object({
    id: z.string().meta({ example: 'hook9f86d081884c7d659a2f' }),
    url: z.string(),
    types: z.array(z.enum(EVENT_TYPES)),
    description: z.string(),
    enabled: z.boolean(),
    disabled_reason: z
      .enum(DISABLED_REASONS)
      .nullable()
      .describe(
        'Why the service has disabled it. `failing`: every delivery failed for days; `gone`: the receiver answered 410; `backlog`: too many deliveries wait.',
      ),
    failing_since: Timestamp.nullable().describe('The first failure since the last success.'),
    old_secret_until: Timestamp.nullable().describe(
      'Until when deliveries carry a signature of the old secret.',
    ),
    created_at: Timestamp,
  })
  .meta({ id: 'Webhook' });
export type WebhookRecord = z.infer<typeof WebhookRecord>;

/** A webhook with its secret, which is shown once. */
export const CreatedWebhook = WebhookRecord.extend({
  secret: z.string().meta({ example: `whsec_${'A'.repeat(43)}=` }),
}).meta({ id: 'CreatedWebhook' });
export type CreatedWebhook = z.infer<typeof CreatedWebhook>;

export const DELIVERY_STATES = ['pending', 'delivered', 'failed'] as const;
export type DeliveryState = (typeof DELIVERY_STATES)[number];

const DeliveryAttempt = z.object({
  attempt: z.int().describe('From 1.'),
  started_at: Timestamp,
  duration_ms: z.int(),
  status: z.int().nullable().describe('Status of the answer; null without one.'),
  error: z.string().nullable().describe('Why there was no answer, or none that counts.'),
  response: z.string().describe('The first kilobyte of the answer.'),
});

export const DeliveryRecord = z
  .object({
    id: z.string().describe('The header `webhook-id`, the same in each attempt.'),
    event_id: z.int().nullable().describe('null for a test.'),
    type: z.string(),
    state: z.enum(DELIVERY_STATES).describe('`failed`: no attempt follows unless you ask for one.'),
    created_at: Timestamp,
    next_attempt_at: Timestamp.nullable(),
    attempts: z.array(DeliveryAttempt).describe('The last ten.'),
  })
  .meta({ id: 'WebhookDelivery' });
export type DeliveryRecord = z.infer<typeof DeliveryRecord>;

export const ListDeliveriesQuery = z.strictObject({
  limit: boundedIntText(1, MAX_LISTED, 100),
  cursor: z.string().max(256).optional(),
  state: z.enum(DELIVERY_STATES, { error: 'must be pending, delivered or failed' }).optional(),
});
export type ListDeliveriesQuery = z.infer<typeof ListDeliveriesQuery>;
