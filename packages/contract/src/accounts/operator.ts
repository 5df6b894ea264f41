/** Wire forms of the calls for the operator: owners of the first organization, who see all organizations and the host. */
import { z } from 'zod';
import { boundedInt, boundedIntText, boundedText, Timestamp } from '../fields.ts';

/** Largest value of the 32-bit columns. */
const MAX_INTEGER = 2 ** 31 - 1;
const MAX_GRANT_CENTS = 100_000_000_000;
const MAX_NOTE_BYTES = 200;

const limit = (min: number, max: number, unit: string, meaning: string) =>
  boundedInt(min, max, unit).nullable().describe(`${meaning} null: the setting of the service applies.`);
const NONE = '0: no limit.';

/** Limits of one organization. */
export const OrganizationLimits = z
  .strictObject({
    sandboxes: limit(0, MAX_INTEGER, '', `Sandboxes that have not ended. ${NONE}`),
    vcpus: limit(0, MAX_INTEGER, '', `Virtual CPUs of running sandboxes. ${NONE}`),
    mem_mib: limit(0, Number.MAX_SAFE_INTEGER, 'MiB', `Memory of running sandboxes. ${NONE}`),
    open_requests: limit(0, MAX_INTEGER, '', `Requests at a time. ${NONE}`),
    open_streams: limit(0, MAX_INTEGER, '', `Streams at a time. ${NONE}`),
    snapshot_bytes: limit(0, Number.MAX_SAFE_INTEGER, 'bytes', 'Size of all snapshots. 0: none.'),
    rate_limit_rps: limit(0, MAX_INTEGER, '', `Requests a second. ${NONE}`),
    rate_limit_burst: limit(1, MAX_INTEGER, '', 'Requests at once.'),
    disks: limit(0, MAX_INTEGER, '', `Persistent disks. ${NONE}`),
    disk_gb: limit(0, MAX_INTEGER, 'GB', `Size of all persistent disks. ${NONE}`),
  })
  .meta({ id: 'OrganizationLimits' });
export type OrganizationLimits = z.infer<typeof OrganizationLimits>;

/** Body of `PATCH /account/operator/organizations/{organization}/limits`: only the limits that are named change. */
export const ChangeLimitsRequest = OrganizationLimits.partial()
  .refine((change) => Object.keys(change).length > 0, { error: 'must name at least one limit' })
  .meta({ id: 'ChangeLimitsRequest' });
export type ChangeLimitsRequest = z.infer<typeof ChangeLimitsRequest>;

/** Body of `POST /account/operator/organizations/{organization}/credit`. */
export const GrantCreditRequest = z
  .strictObject({
    cents: boundedInt(-MAX_GRANT_CENTS, MAX_GRANT_CENTS, 'cents')
      .refine((cents) => cents !== 0, { error: 'must not be 0: nothing would change' })
      .describe('A negative amount takes credit back.'),
    note: boundedText(0, MAX_NOTE_BYTES)
      .default('')
      .describe('For operators; the organization does not see it.'),
  })
  .meta({ id: 'GrantCreditRequest' });
export type GrantCreditRequest = z.infer<typeof GrantCreditRequest>;

/** Query of `GET /account/operator/organizations`. */
export const ListOperatedQuery = z.strictObject({
  limit: boundedIntText(1, 100, 100),
  cursor: z.string().max(256).optional(),
});

export const OperatedOrganization = z
  .object({
    id: z.string(),
    name: z.string(),
    region: z.string(),
    created_at: Timestamp,
    sandboxes: z.int().describe('Creating, running or hibernated.'),
    cost_cents: z.number().describe('Its whole cost so far.'),
    credit_left_cents: z.number().nullable().describe('null if credit has no consequences on this service.'),
    limits: OrganizationLimits,
  })
  .meta({ id: 'OperatedOrganization' });
export type OperatedOrganization = z.infer<typeof OperatedOrganization>;

const Promised = z.object({ promised: z.int(), limit: z.int() });

/** Measurements of a runner by itself. */
const MeasuredRunner = z.object({
  accelerator: z.enum(['kvm', 'tcg']),
  confinement: z.string(),
  versions: z.object({ qemu: z.string(), kernel: z.string(), agent: z.string() }),
  sandboxes: z.record(z.string(), z.int()).describe('VMs by phase.'),
  paused: z.int().describe('VMs that wait for space on the host disk or for the object store.'),
  vcpus: Promised,
  mem_mib: Promised,
  mem_available_mib: z.int(),
  disk_free_mib: z.int(),
  disk_reserve_mib: z.int(),
  starts: z.object({ running: z.int(), waiting: z.int() }),
  warm_pool: z.object({ size: z.int(), limit: z.int(), hits: z.int(), misses: z.int() }),
  disks: z.object({
    attached: z.int(),
    detaching: z.int(),
    waiting: z.int(),
    dirty_bytes: z.int(),
  }),
});

const HostRunner = z
  .object({
    id: z.string(),
    state: z
      .enum(['connected', 'away', 'unowned'])
      .describe('`away`: its control does not hear it. `unowned`: no control has it.'),
    cordoned: z.boolean().describe('It gets no new sandboxes.'),
    draining: z.boolean(),
    region: z.string(),
    address: z.string().nullable().describe('null for one that only the control of its own machine reaches.'),
    control: z.string().nullable().describe('The control that owns it.'),
    heard_seconds_ago: z.number().nullable(),
    measured: MeasuredRunner.nullable().describe(
      'Of now for a runner of the control that answers, else of when its own control last measured it, up to 30 s ago. ' +
        'null if that is not known.',
    ),
  })
  .meta({ id: 'HostRunner' });

export const HostRecord = z
  .object({
    version: z.string(),
    region: z.string(),
    serves: z.boolean().describe('Whether `GET /healthz` answers 200.'),
    fault: z.string().nullable().describe('Why the service cannot serve; null if it can.'),
    controls: z
      .array(
        z.object({
          id: z.string(),
          version: z.string(),
          address: z
            .string()
            .nullable()
            .describe('Where other controls reach it; null for one that is alone.'),
          started_at: Timestamp,
          leading: z.boolean().describe('It does the work that belongs to no runner.'),
          answers: z.boolean().describe('This answer is from it.'),
          runners: z.int().describe('Runners that it owns.'),
        }),
      )
      .describe('Those that are alive.'),
    runners: z.array(HostRunner).describe('All that are not revoked.'),
  })
  .meta({ id: 'Host' });
export type HostRecord = z.infer<typeof HostRecord>;
