import { z } from 'zod';
import { isErrorCode, type ErrorCode } from './errors.ts';

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
