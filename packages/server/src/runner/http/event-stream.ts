import { once } from 'node:events';
import type http2 from 'node:http2';
import type { EventPlace, Heartbeat } from '../../lib/protocol/runner-protocol.ts';
import type { EventSpool } from '../driver/event-spool.ts';
import { writeLine } from './exchange.ts';

/** Control gives a runner up that has sent none for a few intervals. */
const HEARTBEAT_MS = 5_000;

/**
 * Streams the stored events, then new ones, until control leaves; in between, how the runner is. The spool may be larger than memory: one of its files
 * is read at a time, once control has read the one before.
 */
export function streamEvents(
  stream: http2.ServerHttp2Stream,
  { spool, heartbeat }: { spool: EventSpool; heartbeat: () => Heartbeat },
): void {
  stream.respond({ ':status': 200, 'content-type': 'application/x-ndjson' });
  const left = new AbortController();
  const beat = (): void => {
    // While control does not read, later ones replace those that it would get late.
    if (!stream.writableNeedDrain) writeLine(stream, heartbeat());
  };
  beat();
  const timer = setInterval(beat, HEARTBEAT_MS);
  stream.once('close', () => {
    clearInterval(timer);
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
