import { once } from 'node:events';
import type http2 from 'node:http2';
import type { EventPlace } from '../../lib/protocol/runner-protocol.ts';
import type { EventSpool } from '../driver/event-spool.ts';
import { writeLine } from './exchange.ts';

/** An empty line at this rate shows control that the connection lives. */
const HEARTBEAT_MS = 10_000;

/**
 * What is stored, then what comes, until control leaves. The spool may hold more than fits into memory: a
 * file of it is read when control has taken the one before.
 */
export function streamEvents(stream: http2.ServerHttp2Stream, spool: EventSpool): void {
  stream.respond({ ':status': 200, 'content-type': 'application/x-ndjson' });
  const left = new AbortController();
  const heartbeat = setInterval(() => stream.write('\n'), HEARTBEAT_MS);
  stream.once('close', () => {
    clearInterval(heartbeat);
    left.abort();
  });
  passEvents(stream, spool, left.signal).catch(() => stream.destroy());
}

async function passEvents(
  stream: http2.ServerHttp2Stream,
  spool: EventSpool,
  signal: AbortSignal,
): Promise<void> {
  let told: EventPlace | undefined;
  while (!signal.aborted) {
    const events = spool.after(told);
    for (const event of events) writeLine(stream, event);
    told = events.at(-1) ?? told;
    if (signal.aborted) return;
    if (stream.writableNeedDrain) await once(stream, 'drain', { signal });
    else if (events.length === 0) await once(spool, 'event', { signal });
  }
}
