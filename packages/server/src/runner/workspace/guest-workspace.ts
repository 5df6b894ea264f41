/** What the agent does with the mounted disk (docs/reference/agent-protocol.md). */
import type { Logger } from 'pino';
import { z } from 'zod';
import type { AgentSession } from '../agent-client/agent-session.ts';

type Session = Pick<AgentSession, 'call'>;

const SYNC_DEADLINE_MS = 10_000;
/** A frozen file system blocks every program that writes to it. */
const FREEZE_DEADLINE_MS = 10_000;
const GROW_DEADLINE_MS = 60_000;
/** Added to what the agent is given. */
const ANSWER_MS = 5000;

const Synced = z.object({ done: z.boolean() });

/** Writes out what the guest holds in memory. Returns whether that was done in time. */
export async function syncWorkspace(session: Session): Promise<boolean> {
  const body = { deadline_ms: SYNC_DEADLINE_MS };
  const how = { timeoutMs: SYNC_DEADLINE_MS + ANSWER_MS };
  return Synced.parse(await session.call('POST', '/workspace/sync', body, how)).done;
}

/** Like {@link syncWorkspace} before the end of a VM, which does not depend on it. */
export async function tryToSync(session: () => Promise<Session>, log: Logger): Promise<void> {
  try {
    if (!(await syncWorkspace(await session()))) log.warn('a guest did not write out its disk in time');
  } catch (error) {
    log.warn({ err: error }, 'a guest did not write out its disk');
  }
}

/** Runs `work` while the file system is consistent and nothing writes to it. */
export async function whileFrozen<T>(session: Session, work: () => Promise<T>): Promise<T> {
  const how = { timeoutMs: FREEZE_DEADLINE_MS + ANSWER_MS };
  await session.call('POST', '/workspace/freeze', { deadline_ms: FREEZE_DEADLINE_MS }, how);
  try {
    return await work();
  } finally {
    await session.call('POST', '/workspace/thaw', {});
  }
}

/** Grows the file system to the size of the device. */
export async function growWorkspace(session: Session, sizeBytes: number): Promise<void> {
  const how = { timeoutMs: GROW_DEADLINE_MS };
  await session.call('POST', '/workspace/grow', { size_bytes: sizeBytes }, how);
}
