/**
 * Messages of the protocol. A call may wait for a day, and its message with it, so a message is checked before anything
 * waits: what the schemas of the tools do not limit is limited here.
 */
import { AppError } from '@coppice/contract';

/** Of all of a message but the arguments of a tool, whose schema limits those. In characters of JSON. */
const MAX_ENVELOPE = 65_536;
const MAX_ID = 256;

/** The part of a message that matters here. The rest may be any JSON. */
export interface Message {
  method?: unknown;
  id?: string | number | undefined;
  params?: { requestId?: unknown; arguments?: unknown } | undefined;
}

/** Reads what may be a message. Throws AppError `invalid_request` or `payload_too_large` for what is too much. */
export function readMessage(body: unknown): Message {
  // One request may not hold thousands of calls: only requests are limited. Revisions since 2025-06-18 have no batches.
  if (Array.isArray(body))
    throw new AppError('invalid_request', 'body: is a batch; send each message in a request of its own');
  if (typeof body !== 'object' || body === null) return {};
  const { method, id, params }: { method?: unknown; id?: unknown; params?: unknown } = body;
  const message: Message = { method, id: readId(id) };
  if (typeof params === 'object' && params !== null) message.params = params;
  assertSmall(body, message);
  return message;
}

function readId(id: unknown): string | number | undefined {
  if (typeof id === 'number' || id === undefined) return id;
  if (typeof id === 'string' && id.length <= MAX_ID) return id;
  throw new AppError('invalid_request', `id: must be a number or a text of at most ${MAX_ID} characters`);
}

function assertSmall(body: object, { method, params }: Message): void {
  const envelope = method === 'tools/call' ? { ...body, params: { ...params, arguments: undefined } } : body;
  if (JSON.stringify(envelope).length <= MAX_ENVELOPE) return;
  throw new AppError(
    'payload_too_large',
    `body: has over ${MAX_ENVELOPE} characters besides params.arguments of a tool; send less, for example in _meta`,
  );
}
