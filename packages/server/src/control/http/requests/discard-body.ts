import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';

const PATIENCE_MS = 1_000;

/**
 * Reads the body of a request that is refused, for a moment. A connection that is closed with bytes unread is reset, and the client
 * may lose the answer.
 */
export async function discardBody(request: IncomingMessage): Promise<void> {
  const { 'content-length': length = '0', 'transfer-encoding': coding } = request.headers;
  if (length === '0' && coding === undefined) return;
  request.resume();
  await once(request, 'end', { signal: AbortSignal.timeout(PATIENCE_MS) }).catch(() => undefined);
}
