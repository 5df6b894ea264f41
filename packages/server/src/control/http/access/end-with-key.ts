/** Open requests end with their API key: streams report why, and requests that do not end by themselves are cut off. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { KeyEnds, WatchedKey } from '../../auth/key-ends.ts';
import type { OpenRequests } from './open-requests.ts';

/** Time for a stream to report why it ends, once its key is no longer valid. */
const FAREWELL_MS = 1_500;

export function endWithKey(
  request: FastifyRequest,
  reply: FastifyReply,
  { keyEnds, ...key }: WatchedKey & { keyEnds: KeyEnds },
): void {
  const watch = keyEnds.watch(key);
  request.keyEnd = watch.signal;
  let timer: NodeJS.Timeout | undefined;
  watch.signal.addEventListener('abort', () => {
    timer = setTimeout(() => request.raw.socket.destroy(), FAREWELL_MS);
  });
  reply.raw.once('close', () => {
    clearTimeout(timer);
    watch[Symbol.dispose]();
  });
}

/** Aborts when an endless request must end: the service shuts down, or the key is no longer valid. */
export function endOf({ keyEnd }: FastifyRequest, { draining }: Pick<OpenRequests, 'draining'>): AbortSignal {
  return keyEnd === null ? draining : AbortSignal.any([draining, keyEnd]);
}
