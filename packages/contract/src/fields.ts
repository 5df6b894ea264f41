/** Building blocks of the request schemas: every refusal says what is expected, in words a caller can act on. */
import { z } from 'zod';

/** A whole number within limits. `unit` is for the message, for example "MiB". */
export function boundedInt(min: number, max: number, unit = ''): z.ZodInt {
  const error = `must be a whole number from ${min} to ${max}${unit === '' ? '' : ` (${unit})`}`;
  return z.int({ error }).min(min, { error }).max(max, { error });
}

/** A whole number within limits as a query parameter, which comes as text; `standard` is what its absence means. */
export function boundedIntText(min: number, max: number, standard: number): z.ZodType<number> {
  const error = `must be a whole number from ${min} to ${max}`;
  return z
    .string({ error })
    .refine((text) => /^\d{1,16}$/.test(text) && Number(text) >= min && Number(text) <= max, { error })
    .transform(Number)
    .default(standard)
    .meta({ type: 'integer', minimum: min, maximum: max })
    .describe(`Default: ${standard}.`);
}

/** Of JSON Schema: no NUL. */
const NO_NUL = String.raw`^[^\x00]*$`;

/** Text without NUL, which no system call can carry, and within a length in UTF-8 bytes. */
export function boundedText(minBytes: number, maxBytes: number): z.ZodString {
  return z
    .string({ error: 'must be a string' })
    .refine((text) => !text.includes('\0'), { error: 'must not contain a NUL character' })
    .refine((text) => text.isWellFormed(), { error: 'must be valid Unicode' })
    .refine((text) => utf8Length(text) >= minBytes, { error: 'must not be empty' })
    .refine((text) => utf8Length(text) <= maxBytes, { error: `must be at most ${maxBytes} bytes` })
    .meta({ ...(minBytes > 0 ? { minLength: 1 } : {}), maxLength: maxBytes, pattern: NO_NUL });
}

/** Path in the guest; relative ones start at the default working directory. 4096 is the kernel's PATH_MAX. */
export const GuestPath = boundedText(1, 4095);

/** ISO 8601 UTC with milliseconds. */
export const Timestamp = z.string().meta({ format: 'date-time', example: '2026-11-21T06:30:00.000Z' });

function utf8Length(text: string): number {
  return new TextEncoder().encode(text).length;
}
