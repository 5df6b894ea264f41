/**
 * Events of an organization: what happened to its sandboxes, snapshots, disks, images, credit and budgets.
 *
 * An id belongs to one event of the installation. Ids increase in the order in which a reader gets the events, and no
 * event appears later with a smaller id than one that was read. They have gaps: other organizations have the others.
 */
import { z } from 'zod';
import { boundedIntText, Timestamp } from '../fields.ts';
import { STATUS_REASONS } from '../sandbox/lifecycle.ts';
import { LabelFilter } from '../sandbox/sandbox.ts';
import { StreamError } from '../sandbox/streams.ts';

const Shape = { image: z.string(), vcpus: z.int(), mem_mib: z.int(), disk_mib: z.int() };
const End = {
  reason: z.enum(STATUS_REASONS),
  uptime_ms: z.number(),
  cpu_ms: z.number(),
  mem_peak_bytes: z.number(),
};
const Disk = { disk: z.string().describe('Name of the disk.') };

/** Why the service disables a webhook. */
export const DISABLED_REASONS = ['failing', 'gone', 'backlog'] as const;
export type DisabledReason = (typeof DISABLED_REASONS)[number];

/** One kind of refused connection. */
export const Refusal = z.object({
  domain: z.string().optional(),
  ip: z.string().optional(),
  port: z.int().optional(),
  reason: z.string(),
  count: z.int(),
});
export type Refusal = z.infer<typeof Refusal>;

/** Data of each type of event. */
export const EVENTS = {
  'sandbox.created': z.object({
    ...Shape,
    parent: z
      .string()
      .optional()
      .describe('The sandbox that was forked, or of which the snapshot was taken.'),
    snapshot_id: z.string().optional().describe('The snapshot from which it was restored.'),
  }),
  'sandbox.forked': z.object({ child: z.string() }),
  'sandbox.hibernated': z.object({}),
  'sandbox.resumed': z.object({}),
  'sandbox.rolled_back': z.object({ snapshot_id: z.string() }),
  'sandbox.destroyed': z.object(End),
  'sandbox.failed': z.object(End),
  'snapshot.created': z.object({ snapshot_id: z.string() }),
  'snapshot.deleted': z.object({ snapshot_id: z.string() }),
  'command.exited': z.object({
    command_id: z.string(),
    exit_code: z.int().nullable().describe('null if the end was not observed.'),
    duration_ms: z.int(),
  }),
  'network.blocked': z.object({
    count: z.int().describe('Refused connections and names since the last event of this type.'),
    refusals: z.array(Refusal).describe('Ten kinds at most.'),
    left_out: z.int().describe('How many of `count` belong to kinds that are not listed.'),
  }),
  'disk.created': z.object({ ...Disk, size_gb: z.int() }),
  'disk.attached': z.object({ ...Disk, version: z.int().optional(), recovered: z.boolean().optional() }),
  'disk.detached': z.object({ ...Disk, version: z.int().optional() }),
  'disk.snapshot_created': z.object({ ...Disk, snapshot: z.string(), version: z.int() }),
  'disk.deleted': z.object(Disk),
  'image.build_ended': z.object({
    build_id: z.string(),
    image: z.string().describe('The name that was asked for, `built/name:tag`.'),
    status: z.enum(['done', 'failed', 'cancelled']),
    digest: z.string().nullable().describe('Of the new image; null unless the build is done.'),
    error: z.string().nullable().describe('Code of the error; null unless the build has failed.'),
  }),
  'usage.billed': z
    .object({ started_at: Timestamp, ended_at: Timestamp, vcpus: z.int(), mem_mib: z.int() })
    .describe('A period of running that is over.'),
  'credit.exhausted': z.object({}),
  'credit.restored': z.object({}),
  'budget.reached': z.object({
    scope: z.string().describe('`organization` or the id of the team.'),
    month: z.string().describe('In UTC, for example 2026-11.'),
    percent: z.int().describe('The part of the budget that the cost has reached.'),
    cost_cents: z.number().describe('Cost of the month when this was found.'),
    month_cents: z.int().describe('The budget.'),
  }),
  'webhook.disabled': z.object({ webhook_id: z.string(), reason: z.enum(DISABLED_REASONS) }),
} as const satisfies Record<string, z.ZodType>;

export type EventType = keyof typeof EVENTS;
export type EventData<T extends EventType> = z.infer<(typeof EVENTS)[T]>;

export const EVENT_TYPES = Object.keys(EVENTS) as EventType[];

/** A type in a request. */
export const RequestedEventType = z.enum(EVENT_TYPES, { error: `must be one of ${EVENT_TYPES.join(', ')}` });

/** One event, as `GET /v1/events` lists it. */
export const EventRecord = z
  .object({
    id: z.int(),
    type: z.enum(EVENT_TYPES),
    timestamp: Timestamp.describe('When it happened. Events are ordered by id, not by time.'),
    team_id: z.string().nullable().describe('null for what belongs to the whole organization.'),
    run_id: z.string().nullable().describe('The sandbox; null if there is none.'),
    labels: z.record(z.string(), z.string()).describe('Labels of the sandbox.'),
    data: z.record(z.string(), z.unknown()).describe('Fields by type: see docs/guides/events.md.'),
  })
  .meta({ id: 'Event' });
export type EventRecord = z.infer<typeof EventRecord>;

/** One message of the stream. Its id is where a client continues. */
export const EventFrame = z
  .union([
    EventRecord,
    z.object({
      type: z.literal('position'),
      id: z.int().describe('Everything up to this id has been sent.'),
    }),
    z.object({
      type: z.literal('lost'),
      id: z.int().describe('Events up to this id are no longer kept; the stream continues after it.'),
    }),
    StreamError,
  ])
  .meta({ id: 'EventFrame' });
export type EventFrame = z.infer<typeof EventFrame>;

/** Below 2^53. */
export const EVENT_ID = /^\d{1,15}$/;
const MAX_TYPES = EVENT_TYPES.length;
const MAX_LABELS = 8;
const MAX_LISTED = 500;

/** Query of `GET /v1/events`. `type` and `label` may be repeated: any type, all labels must match. */
export const ListEventsQuery = z.strictObject({
  after: z
    .string()
    .regex(EVENT_ID, { error: 'must be the id of an event, a whole number' })
    .transform(Number)
    .meta({ type: 'integer', minimum: 0 })
    .optional()
    .describe(
      'Begins after the event with this id; 0: with the oldest that is kept. Default: 0 for a page, new events for a stream.',
    ),
  limit: boundedIntText(1, MAX_LISTED, 100).describe('Events in a page at most. A stream has no limit.'),
  type: z
    .union([RequestedEventType.transform((one) => [one]), z.array(RequestedEventType).max(MAX_TYPES)])
    .optional(),
  run_id: z.string().max(200).optional().describe('Only events of this sandbox.'),
  label: z
    .union([LabelFilter.transform((one) => [one]), z.array(LabelFilter).max(MAX_LABELS)])
    .optional()
    .describe('Only events of sandboxes with this label, `name:value`.'),
});
export type ListEventsQuery = z.infer<typeof ListEventsQuery>;
