import { encodeFrame, FRAME } from '../../lib/protocol/frames.ts';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import type { ImageConfig } from '../image/store/image-store.types.ts';
import type { AgentSession } from './agent-session.ts';
import { buildResumeRequest, type GuestAddresses } from './resume-request.ts';

/** The agent kills a command that does not end, so an image with such a shell can still become a template. */
const EXEC_TIMEOUT_MS = 8000;
/** Resume generation of every template. VMs restored from a template use higher ones. */
export const TEMPLATE_GENERATION = 1;
/** Has the form of a sandbox id and belongs to no sandbox. */
const NOBODY = `run${'0'.repeat(20)}`;

export interface Rehearsal {
  /** Generation of this resume; the real resume has a higher one. */
  generation: number;
  image: ImageConfig;
  network: GuestAddresses | undefined;
}

/**
 * Runs everything that a create waits for once, under a name that no sandbox has. As a result files are in the writable
 * layer, caches are full, memory is faulted in, and an emulator has translated the code. No user code runs, and the
 * real `resume` replaces all of it.
 */
export async function rehearse(session: AgentSession, rehearsal: Rehearsal): Promise<void> {
  await session.call('POST', '/resume', buildResumeRequest({ vmId: NOBODY, ...rehearsal }));
  await execTrue(session);
}

/** Waits until the exec ends, with any result: an image without a shell refuses it, which does no harm. */
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
