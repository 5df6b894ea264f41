import { encodeFrame, FRAME } from '../../lib/protocol/frames.ts';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import type { ImageConfig } from '../image/store/image-store.types.ts';
import type { AgentSession } from './agent-session.ts';
import { buildResumeRequest, type GuestAddresses } from './resume-request.ts';

/** The agent kills a command that does not end: a template of an image with such a shell is still possible. */
const EXEC_TIMEOUT_MS = 8000;
/** Of the resume that every template carries: those of the VMs restored from it are greater. */
export const TEMPLATE_GENERATION = 1;
/** Shaped like a sandbox's id, and nobody's. */
const NOBODY = `run${'0'.repeat(20)}`;

export interface Rehearsal {
  /** Of the resume; the real one has a greater. */
  generation: number;
  image: ImageConfig;
  network: GuestAddresses | undefined;
}

/**
 * Runs once what every create waits for, under a name that no sandbox has. Then files are in the writable layer,
 * caches are full, memory is faulted in, and an emulator has translated the code. Nothing of a user's has run, and
 * the real `resume` replaces all of it.
 */
export async function rehearse(session: AgentSession, rehearsal: Rehearsal): Promise<void> {
  await session.call('POST', '/resume', buildResumeRequest({ vmId: NOBODY, ...rehearsal }));
  await execTrue(session);
}

/** To its end, however it ends: an image without a shell refuses it, which does no harm. */
async function execTrue(session: AgentSession): Promise<void> {
  const stream = session.request({ ':method': 'POST', ':path': '/exec' });
  const ended = Promise.withResolvers<undefined>();
  stream.once('error', (error) => ended.reject(error));
  stream.once('close', () => ended.resolve(undefined));
  stream.resume();
  stream.end(
    encodeFrame(FRAME.head, Buffer.from(JSON.stringify({ command: 'true', timeout_ms: EXEC_TIMEOUT_MS }))),
  );
  const { answerTimeoutMs } = session;
  await withDeadline('the rehearsal of an exec', answerTimeoutMs, ended.promise, () => stream.destroy());
}
