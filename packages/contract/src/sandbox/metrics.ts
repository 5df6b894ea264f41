/** Wire forms of the measured usage of a sandbox. */
import { z } from 'zod';
import { Moment, Timestamp } from '../fields.ts';

/** Time between two measurements, and how long they are kept. */
export const METRICS_SAMPLE_S = 10;
export const METRICS_KEPT_S = 3600;

const STEP_ERROR = `must be a multiple of ${METRICS_SAMPLE_S} from ${METRICS_SAMPLE_S} to ${METRICS_KEPT_S} (seconds)`;

const Count = z.int().nonnegative();

/** Query of `GET /v1/runs/{id}/metrics`. */
export const MetricsQuery = z.strictObject({
  since: Moment.optional().describe('Only points of the series that end later. Default: an hour ago.'),
  step: z
    .string({ error: STEP_ERROR })
    .refine((text) => /^\d{1,4}$/.test(text) && isStep(Number(text)), { error: STEP_ERROR })
    .transform(Number)
    .default(METRICS_SAMPLE_S)
    .meta({
      type: 'integer',
      minimum: METRICS_SAMPLE_S,
      maximum: METRICS_KEPT_S,
      multipleOf: METRICS_SAMPLE_S,
    })
    .describe(`Seconds of each point of the series. Default: ${METRICS_SAMPLE_S}.`),
});
export type MetricsQuery = z.infer<typeof MetricsQuery>;

function isStep(seconds: number): boolean {
  return seconds >= METRICS_SAMPLE_S && seconds <= METRICS_KEPT_S && seconds % METRICS_SAMPLE_S === 0;
}

const CpuUtilization = z
  .number()
  .nonnegative()
  .describe(
    'CPU time as a part of that of all vCPUs. It may exceed 1: the virtual machine monitor works, too.',
  );

const MetricsNow = z
  .object({
    at: Timestamp,
    cpu: z.object({
      used_seconds: z.number().nonnegative().describe('Since the sandbox was last started or resumed.'),
      utilization: CpuUtilization.nullable().describe('Over the last seconds; null in the first ones.'),
    }),
    memory: z.object({
      host_bytes: Count.describe('Memory of the host that the sandbox occupies.'),
      size_bytes: Count,
    }),
    disk: z.object({
      used_bytes: Count.describe('Space that the scratch disk takes on the host, without the image.'),
      size_bytes: Count,
      read_bytes: Count.describe('From all disks, since the sandbox was last started or resumed.'),
      written_bytes: Count,
    }),
    workspace: z
      .object({
        size_bytes: Count,
        dirty_bytes: Count.describe('Not yet in the object store.'),
      })
      .nullable()
      .describe('The persistent disk; null without one.'),
    network: z
      .object({
        received_bytes: Count,
        sent_bytes: Count,
        received_packets: Count,
        sent_packets: Count,
      })
      .nullable()
      .describe(
        'All frames at the network device since the sandbox was last started or resumed, also refused ones. Null without a device.',
      ),
    guest_reported: z
      .object({
        memory_total_bytes: Count,
        memory_available_bytes: Count,
        disk_total_bytes: Count,
        disk_used_bytes: Count,
        load1: z.number().nonnegative(),
        processes: Count,
      })
      .nullable()
      .describe(
        'Reported by the agent in the sandbox, where root can make it say anything. Null if it does not answer within 2 s.',
      ),
  })
  .describe('Measured on the host, except `guest_reported`.')
  .meta({ id: 'MetricsNow' });

export const MetricsPoint = z
  .object({
    at: Timestamp.describe('End of the point.'),
    duration_seconds: z.number().nonnegative().describe('Time in which the amounts were used.'),
    cpu_utilization: CpuUtilization,
    memory_bytes: Count.describe('At the end of the point, as `host_bytes`.'),
    disk_used_bytes: Count.describe('At the end of the point.'),
    disk_read_bytes: Count.describe('In the time of the point, as the other amounts.'),
    disk_written_bytes: Count,
    network_received_bytes: Count,
    network_sent_bytes: Count,
    network_received_packets: Count,
    network_sent_packets: Count,
  })
  .meta({ id: 'MetricsPoint' });
export type MetricsPoint = z.infer<typeof MetricsPoint>;

/** Answer of `GET /v1/runs/{id}/metrics`. */
export const SandboxMetrics = z
  .object({
    now: MetricsNow.nullable().describe('Null while the sandbox does not run.'),
    series: z
      .array(MetricsPoint)
      .describe(
        'At most the last hour, oldest first. It begins when the sandbox starts, or when the runner does: times without measurements have no points.',
      ),
    step_seconds: z.int(),
  })
  .meta({ id: 'SandboxMetrics' });
export type SandboxMetrics = z.infer<typeof SandboxMetrics>;
