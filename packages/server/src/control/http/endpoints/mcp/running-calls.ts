/**
 * Calls in progress, by which a client of the revisions of 2025 can cancel one: it sends a notification in another request,
 * and keeps the connection of the call open. Ids of calls are counted from 0 by each client, so the session that the
 * service gives to each distinguishes them: without it a client could cancel the call of another with the same key, so
 * such a call ends only with its connection. Nothing else belongs to a session, and none is stored.
 */
import { randomUUID } from 'node:crypto';
import { AppError } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import type { Message } from './message.ts';

const SESSION_HEADER = 'mcp-session-id';
const MAX_SESSION = 128;
const NOTHING: Disposable = { [Symbol.dispose]: () => undefined };

type Call = Pick<FastifyRequest, 'apiKeyId' | 'headers'>;

export class RunningCalls {
  readonly #calls = new Map<string, AbortController>();

  /**
   * Notes a call until the result is disposed, and carries out a cancellation. Throws AppError `invalid_request` for an id
   * that the session uses already: it would be unknown which of the two a cancellation means.
   */
  accept(request: Call, { method, id, params }: Message, controller: AbortController): Disposable {
    const session = readSession(request);
    if (session === undefined || method === undefined) return NOTHING;
    const toKey = (callId: unknown): string => JSON.stringify([request.apiKeyId, session, callId]);
    if (method === 'notifications/cancelled') this.#calls.get(toKey(params?.requestId))?.abort();
    if (id === undefined) return NOTHING;
    // A string and a number are different ids.
    const key = toKey(id);
    if (this.#calls.has(key))
      throw new AppError('invalid_request', `id: the session runs a call with the id ${id}; use another`);
    this.#calls.set(key, controller);
    return { [Symbol.dispose]: () => void this.#calls.delete(key) };
  }
}

function readSession({ headers }: Call): string | undefined {
  const session = headers[SESSION_HEADER];
  if (session === undefined || (typeof session === 'string' && session.length <= MAX_SESSION)) return session;
  throw new AppError('invalid_request', `${SESSION_HEADER}: must be the one that the service gave`);
}

/** Returns the header fields that begin a session, for the answer to a message that does so. */
export function beginSession({ method }: Message): Record<string, string> {
  return method === 'initialize' ? { [SESSION_HEADER]: randomUUID() } : {};
}
