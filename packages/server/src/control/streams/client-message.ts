/**
 * Parses text messages of clients on WebSockets: JSON of a known form. Others throw `invalid_request` with the cause.
 */
import { AppError, invalidRequest } from '@coppice/contract';
import type { z } from 'zod';

export interface ClientMessage {
  data: Buffer;
  isBinary: boolean;
}

export function parseMessage<T extends z.ZodType>(schema: T, message: ClientMessage): z.infer<T> {
  const input = readJson(message);
  const result = schema.safeParse(input);
  if (result.success) return result.data;
  throw invalidRequest(result.error, { where: 'message', input });
}

function readJson({ data, isBinary }: ClientMessage): unknown {
  if (isBinary) throw new AppError('invalid_request', 'message: must be JSON text, not binary');
  try {
    return JSON.parse(data.toString('utf8'));
  } catch {
    throw new AppError('invalid_request', 'message: is not JSON');
  }
}
