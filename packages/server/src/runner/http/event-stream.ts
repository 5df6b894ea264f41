import { once } from 'node:events';
import type http2 from 'node:http2';
import type { EventPlace } from '../../lib/protocol/runner-protocol.ts';
import type { EventSpool } from '../driver/event-spool.ts';
import { writeLine } from './exchange.ts';

/** Interval of empty lines, which show control that the connection is alive. */
const HEARTBEAT_MS = 10_000;

/**
 * Streams the stored events, then new ones, until control leaves. The spool may be larger than memory: one of its files
 * is read at a time, once control has read the one before.
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
