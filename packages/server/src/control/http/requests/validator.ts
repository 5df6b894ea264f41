/** Checks parts of requests against their schemas, with errors that name the field and the remedy. */
import { invalidRequest } from '@coppice/contract';
import type { z } from 'zod';
import { findBadText } from './find-bad-text.ts';

type Where = 'body' | 'query' | 'path' | 'header' | 'request';

const PART_NAMES: Record<string, Where> = {
  body: 'body',
  querystring: 'query',
  params: 'path',
  headers: 'header',
};

/** Fastify's validator compiler, for every part of a request that has a schema. */
export function compileValidator({ schema, httpPart }: { schema: z.ZodType; httpPart?: string }) {
  const where = PART_NAMES[httpPart ?? 'body'] ?? 'request';
  return (input: unknown) => {
    try {
      return { value: parsePart(schema, { where, input }) };
    } catch (error) {
      return { error: error as Error };
    }
  };
}

/** Parses one part of a request. Throws `invalid_request`. */
export function parsePart<T extends z.ZodType>(
  schema: T,
  { where, input }: { where: Where; input: unknown },
): z.infer<T> {
  const result = schema.safeParse(input);
  if (!result.success) throw invalidRequest(result.error, { where, input });
  const fault = findBadText(result.data);
  if (fault !== undefined) throw invalidRequest(fault, { where, input });
  return result.data;
}
