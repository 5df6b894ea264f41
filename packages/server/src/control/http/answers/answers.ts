/** Response schemas: the successful answer of an endpoint, and the error statuses that it can return. */
import { ErrorAnswer } from '@coppice/contract';
import { z } from 'zod';

/** For the description only: raw bytes are piped, neither checked nor serialized. */
export const CONTENT = z.any().meta({ type: 'string', format: 'binary' });

type ErrorStatus =
  | 400
  | 401
  | 402
  | 403
  | 404
  | 409
  | 410
  | 413
  | 416
  | 422
  | 429
  | 500
  | 502
  | 503
  | 504
  | 507;

export type Answers<S extends number, T extends z.ZodType> = Record<S, T> &
  Partial<Record<ErrorStatus, typeof ErrorAnswer>>;

/** A successful answer whose content type depends on the request, or is not JSON. */
export function contents(
  description: string,
  schemas: Record<string, z.ZodType>,
): { description: string; content: Record<string, { schema: z.ZodType }> } {
  const content = Object.fromEntries(Object.entries(schemas).map(([type, schema]) => [type, { schema }]));
  return { description, content };
}

/** Refers to a schema that the document names. With defaults it has another form in requests: `suffix` selects it. */
export function referTo(schema: z.ZodType, suffix = ''): { $ref: string } {
  return { $ref: `#/components/schemas/${z.globalRegistry.get(schema)?.id}${suffix}` };
}

/** One event of a `text/event-stream`: its data is JSON. */
export function eventOf(schema: z.ZodType): z.ZodType {
  const data = z.string().meta({ contentMediaType: 'application/json', contentSchema: referTo(schema) });
  return z
    .looseObject({ data })
    .describe('An event. Lines that begin with a colon keep the connection open.');
}

/** Schema of an answer without a body. */
export const NOTHING = z.null().describe('Done.');

export function answers<S extends 200 | 201 | 204, T extends z.ZodType>(
  status: S,
  schema: T,
  errors: readonly ErrorStatus[],
): Answers<S, T> {
  const failures = Object.fromEntries(errors.map((error) => [error, ErrorAnswer]));
  return { [status]: schema, ...failures } as Answers<S, T>;
}
