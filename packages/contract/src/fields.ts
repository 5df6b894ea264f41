/** Building blocks of the request schemas. Every error message says what is expected, so the caller can act on it. */
import { z } from 'zod';

/** Schema of a whole number from `min` to `max`. `unit` appears in the error message, for example "MiB". */
export function boundedInt(min: number, max: number, unit = ''): z.ZodInt {
  const error = `must be a whole number from ${min} to ${max}${unit === '' ? '' : ` (${unit})`}`;
  return z.int({ error }).min(min, { error }).max(max, { error });
}

/** Schema of a query parameter (text) with a whole number from `min` to `max`. `standard` is the default. */
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

/** JSON Schema pattern: no NUL. */
const NO_NUL = String.raw`^[^\x00]*$`;

/** Schema of a text with a length in UTF-8 bytes, without NUL, because no system call can carry NUL. */
export function boundedText(minBytes: number, maxBytes: number): z.ZodString {
  return z
    .string({ error: 'must be a string' })
    .refine((text) => !text.includes('\0'), { error: 'must not contain a NUL character' })
    .refine((text) => text.isWellFormed(), { error: 'must be valid Unicode' })
    .refine((text) => utf8Length(text) >= minBytes, { error: 'must not be empty' })
    .refine((text) => utf8Length(text) <= maxBytes, { error: `must be at most ${maxBytes} bytes` })
    .meta({ ...(minBytes > 0 ? { minLength: 1 } : {}), maxLength: maxBytes, pattern: NO_NUL });
}

/** Path in the guest; a relative path starts at the default working directory. The kernel's PATH_MAX is 4096. */
export const GuestPath = boundedText(1, 4095);

export const DEFAULT_CWD = "Default: the cwd of the sandbox, else the image's WORKDIR, else /workspace.";

/** Query parameter that is true or false; false without one. */
export const FlagText = z
  .enum(['true', 'false'], { error: 'must be true or false' })
  .default('false')
  .transform((text) => text === 'true');

/** ISO 8601 UTC with milliseconds. */
export const Timestamp = z.string().meta({ format: 'date-time', example: '2026-11-21T06:30:00.000Z' });

/** Schema of a time with its offset, in Unix milliseconds once parsed. */
export const Moment = z.iso
  .datetime({ offset: true, error: 'must be a time such as 2026-11-21T06:30:00Z' })
  .transform((text) => Date.parse(text));

export function utf8Length(text: string): number {
  return new TextEncoder().encode(text).length;
}
