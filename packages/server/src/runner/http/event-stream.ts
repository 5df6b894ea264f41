import type http2 from 'node:http2';
import type { RunnerEvent } from '../../lib/runner-protocol.ts';
import type { EventSpool } from '../driver/event-spool.ts';
import { writeLine } from './exchange.ts';

/** An empty line at this rate shows control that the connection lives. */
const HEARTBEAT_MS = 10_000;

/** What is stored after `seq`, then live events, until control leaves. */
export function streamEvents(stream: http2.ServerHttp2Stream, spool: EventSpool, seq: number): void {
  stream.respond({ ':status': 200, 'content-type': 'application/x-ndjson' });
  const onEvent = (event: RunnerEvent): void => writeLine(stream, event);
  for (const event of spool.after(seq)) writeLine(stream, event);
  spool.on('event', onEvent);
  const heartbeat = setInterval(() => stream.write('\n'), HEARTBEAT_MS);
  stream.once('close', () => {
    clearInterval(heartbeat);
    spool.off('event', onEvent);
  });
}
