/** What is open with an API key ends with it: streams are told why, and what does not end by itself is cut off. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { KeyEnds } from '../../auth/key-ends.ts';
import type { OpenRequests } from './open-requests.ts';

/** For a stream to say why, once its key is found to be good no longer. */
const FAREWELL_MS = 1_500;

export function endWithKey(
  request: FastifyRequest,
  reply: FastifyReply,
  { keyEnds, apiKeyId }: { keyEnds: KeyEnds; apiKeyId: string },
): void {
  const watch = keyEnds.watch(apiKeyId);
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

/** Aborted when what has no end of its own must end: the service shuts down, or the key is good no longer. */
export function endOf({ keyEnd }: FastifyRequest, { draining }: Pick<OpenRequests, 'draining'>): AbortSignal {
  return keyEnd === null ? draining : AbortSignal.any([draining, keyEnd]);
}
