import type { ClientHttp2Session } from 'node:http2';
import { stretched } from '../../lib/waiting/deadline.ts';

const PING_EVERY_MS = 5_000;
/** Answers wait behind all that the runner has sent before them. */
const MAX_UNANSWERED = 3;

/** Ends a session over a network on which nothing arrives any more, which TCP alone would notice only after minutes. */
export function watchSession(session: ClientHttp2Session, everyMs: number = stretched(PING_EVERY_MS)): void {
  let unanswered = 0;
  const timer = setInterval(() => {
    // It is closed only when its socket is, and throws until then.
    if (session.destroyed) return clearInterval(timer);
    if (unanswered >= MAX_UNANSWERED) return session.destroy(new Error('the runner answers no pings'));
    unanswered += 1;
    session.ping((error) => {
      if (error === null) unanswered = 0;
    });
  }, everyMs);
  session.once('close', () => clearInterval(timer));
}
