/** Wire forms of usage and cost: the rollup, the history, and the monthly statement. */
import { z } from 'zod';
import { boundedIntText, boundedText, Moment, Timestamp } from '../fields.ts';
import { LabelFilter, ListSandboxesQuery } from '../sandbox/sandbox.ts';
import { STATUS_REASONS } from '../sandbox/lifecycle.ts';

const Cents = z.number().describe('Exact amount; fractions are normal.');
const CpuSeconds = z.number().describe('vCPU-seconds of billed time.');
const MemSeconds = z.number().describe('GiB-seconds of billed time.');

const DiskGbHours = z.number().describe('Data that disks stored, in GB of 2^30 bytes, multiplied by hours.');
const DiskCents = z
  .number()
  .describe('Cost of that data: 2 cents for a GB in 730 hours. Part of the whole cost.');

/** Answer of `GET /v1/usage`. */
export const UsageRecord = z
  .object({
    active_sandboxes: z.int().describe('Creating, running or hibernated.'),
    history_sandboxes: z.int().describe('Destroyed or failed, without creates that never ran.'),
    active_cost_cents: Cents.describe('Cost of the active sandboxes up to now.'),
    history_cost_cents: Cents.describe('Cost of the sandboxes in the history.'),
    total_cost_cents: Cents.describe('Cost of all sandboxes and disks up to now.'),
    cpu_seconds: CpuSeconds,
    mem_seconds: MemSeconds,
    disk_gb_hours: DiskGbHours,
    disk_cost_cents: DiskCents,
    credit_cents: z
      .number()
      .optional()
      .describe(
        'Total credit granted so far; present only where credit is on, for keys of the whole organization.',
      ),
    credit_left_cents: z.number().optional().describe('Remaining credit; below 0 when it is exhausted.'),
    as_of: Timestamp,
  })
  .meta({ id: 'Usage' });
export type UsageRecord = z.infer<typeof UsageRecord>;

/** A sandbox that ran and has ended: an entry of `GET /v1/runs/history`. */
export const HistoryRecord = z
  .object({
    id: z.string(),
    status: z.enum(['destroyed', 'failed']),
    status_reason: z.enum(STATUS_REASONS).nullable(),
    team_id: z.string().describe('Team of the key that created the sandbox.'),
    image: z.string(),
    vcpus: z.int(),
    mem_mib: z.int(),
    labels: z.record(z.string(), z.string()),
    create_ms: z
      .number()
      .nullable()
      .describe('null if an earlier version billed a create that did not finish.'),
    created_at: Timestamp,
    destroyed_at: Timestamp,
    uptime_ms: z.number(),
    billed_ms: z.number().describe('Uptime without hibernation; the cost is computed from it.'),
    cpu_ms: z.number(),
    mem_peak_bytes: z.number(),
    cost_cents: Cents,
  })
  .meta({ id: 'HistoryEntry' });
export type HistoryRecord = z.infer<typeof HistoryRecord>;

const FINAL_STATES = ['destroyed', 'failed'] as const;
const FinalFilter = z.enum(FINAL_STATES, { error: `must be one of ${FINAL_STATES.join(', ')}` });

/** Query of `GET /v1/runs/history`. `label` and `status` may be repeated: all labels must match, any status. */
export const ListHistoryQuery = z.strictObject({
  limit: ListSandboxesQuery.shape.limit,
  cursor: ListSandboxesQuery.shape.cursor,
  label: z.union([LabelFilter.transform((one) => [one]), z.array(LabelFilter).max(8)]).optional(),
  status: z.union([FinalFilter.transform((one) => [one]), z.array(FinalFilter).max(8)]).optional(),
  from: Moment.optional().describe('Only sandboxes that ended at this time or later.'),
  to: Moment.optional().describe('Only sandboxes that ended before this time.'),
  image: boundedText(1, 512).optional().describe('An image reference as in a create, or a resolved one.'),
});
export type ListHistoryQuery = z.infer<typeof ListHistoryQuery>;

/** A month in UTC. */
export const StatementParams = z.strictObject({
  month: z.string().regex(/^(19|[2-9]\d)\d\d-(0[1-9]|1[0-2])$/, { error: 'must be a month such as 2026-11' }),
});

/** Query of `GET /v1/statements/{month}`. */
export const StatementQuery = z.strictObject({
  format: z.enum(['json', 'csv'], { error: 'must be json or csv' }).default('json'),
  limit: boundedIntText(1, 1000, 100).describe(
    'Maximum number of lines; the sums always cover the whole month.',
  ),
  cursor: z
    .string()
    .regex(/^run[0-9a-f]{20}$/, { error: 'is not a cursor from a Link header; start without one' })
    .optional(),
});

const Sums = {
  sandboxes: z.int().describe('Number of sandboxes that ran in the month.'),
  cpu_seconds: CpuSeconds,
  mem_seconds: MemSeconds,
  cost_cents: Cents.describe('Cost of sandboxes and disks.'),
  disk_gb_hours: DiskGbHours,
  disk_cost_cents: DiskCents,
};

export const StatementLine = z
  .object({
    sandbox_id: z.string(),
    team_id: z.string(),
    image: z.string(),
    vcpus: z.int(),
    mem_mib: z.int(),
    billed_ms: z.number().describe('Billed time in this month.'),
    cost_cents: Cents,
  })
  .meta({ id: 'StatementLine' });
export type StatementLine = z.infer<typeof StatementLine>;

export const StatementDisk = z
  .object({ disk: z.string(), team_id: z.string(), gb_hours: DiskGbHours, cost_cents: Cents })
  .meta({ id: 'StatementDisk' });
export type StatementDisk = z.infer<typeof StatementDisk>;

/** Answer of `GET /v1/statements/{month}`. */
export const Statement = z
  .object({
    month: z.string().meta({ example: '2026-11' }),
    from: Timestamp,
    to: Timestamp.describe('End of the month, exclusive.'),
    as_of: Timestamp,
    complete: z.boolean().describe('True when the statement can no longer change.'),
    ...Sums,
    teams: z.array(z.object({ team_id: z.string(), ...Sums })),
    disks: z
      .array(StatementDisk)
      .describe(
        'A line for each disk that stored data in the month, also if it is deleted now. On every page.',
      ),
    lines: z.array(StatementLine).describe('Sorted by sandbox id, in pages.'),
  })
  .meta({ id: 'Statement' });
export type Statement = z.infer<typeof Statement>;
