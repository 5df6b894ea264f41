import { encodeFrame, FRAME } from '../../lib/frames.ts';
import { withDeadline } from '../../lib/deadline.ts';
import type { AgentSession } from './agent-session.ts';

const TIMEOUT_MS = 15_000;

/** Runs `true` to its end and ignores how: an image without a shell refuses it, which does no harm. */
export async function rehearseExec(session: AgentSession): Promise<void> {
  const stream = session.request({ ':method': 'POST', ':path': '/exec' });
  const ended = Promise.withResolvers<undefined>();
  stream.once('error', (error) => ended.reject(error));
  stream.once('close', () => ended.resolve(undefined));
  stream.resume();
  stream.end(
    encodeFrame(FRAME.head, Buffer.from(JSON.stringify({ command: 'true', timeout_ms: TIMEOUT_MS }))),
  );
  await withDeadline('the rehearsal of an exec', TIMEOUT_MS, ended.promise, () => stream.destroy());
}
