import { z } from 'zod';
import { isErrorCode, type ErrorCode } from './errors.ts';

/** The region of an API key that belongs to another one. */
export const KeyRegion = z.object({
  name: z.string(),
  base_url: z
    .string()
    .nullable()
    .describe('Address of the service of that region; null if this service does not know it.'),
});

export type KeyRegion = z.infer<typeof KeyRegion>;

/** Schema of every error answer. */
export const ErrorAnswer = z
  .object({
    error: z.object({
      code: z.custom<ErrorCode>(isErrorCode).meta({ type: 'string' }),
      message: z.string(),
      request_id: z.string().optional(),
      trace_id: z
        .string()
        .optional()
        .describe('Id of the trace of the request; only if the service records traces.'),
      region: KeyRegion.optional().describe(
        'Only of `unauthorized`, for a key of another region: where it belongs. A client must not send the key there by itself.',
      ),
    }),
  })
  .meta({ id: 'Error' });

export const HealthStatus = z
  .object({
    status: z.literal('ok'),
    version: z.string(),
    accelerator: z
      .enum(['kvm', 'tcg'])
      .describe(
        'Accelerator of new sandboxes: `kvm`, or `tcg`, which is emulation and several times slower.',
      ),
  })
  .meta({ id: 'Health' });
