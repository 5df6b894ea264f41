/**
 * Calls in progress, by which a client of the revisions of 2025 can cancel one: it sends a notification in another request,
 * and keeps the connection of the call open. Ids of calls are counted from 0 by each client, so the session that the
 * service gives to each distinguishes them. Nothing else belongs to a session, and none is stored.
 */
import { randomUUID } from 'node:crypto';
import type { FastifyRequest } from 'fastify';

const SESSION_HEADER = 'mcp-session-id';

/** The part of a message that matters here. The body is any JSON. */
interface Message {
  method?: unknown;
  id?: unknown;
  params?: { requestId?: unknown } | undefined;
}

type Call = Pick<FastifyRequest, 'apiKeyId' | 'headers'>;

export class RunningCalls {
  readonly #calls = new Map<string, AbortController>();

  /** Notes a call until the result is disposed, and carries out a cancellation. */
  accept(request: Call, message: Message, controller: AbortController): Disposable {
    const { method, id, params } = message;
    if (method === 'notifications/cancelled') this.#calls.get(keyOf(request, params?.requestId))?.abort();
    const key = keyOf(request, id);
    if (method === undefined || id === undefined) return { [Symbol.dispose]: () => undefined };
    this.#calls.set(key, controller);
    return {
      [Symbol.dispose]: () => {
        if (this.#calls.get(key) === controller) this.#calls.delete(key);
      },
    };
  }
}

/** A string and a number are different ids. */
function keyOf({ apiKeyId, headers }: Call, id: unknown): string {
  return JSON.stringify([apiKeyId, headers[SESSION_HEADER] ?? null, id ?? null]);
}

/** Returns the header fields that begin a session, for the answer to a message that does so. */
export function beginSession({ method }: Message): Record<string, string> {
  return method === 'initialize' ? { [SESSION_HEADER]: randomUUID() } : {};
}

/** Reads what may be a message. */
export function toMessage(body: unknown): Message {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return {};
  const { params, ...message } = body as Message;
  return typeof params === 'object' && params !== null ? { ...message, params } : message;
}
