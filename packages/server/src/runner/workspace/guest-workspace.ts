/** Requests to the agent about the mounted disk (docs/reference/agent-protocol.md). */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { z } from 'zod';
import type { AgentSession } from '../agent-client/agent-session.ts';

type Session = Pick<AgentSession, 'call'>;

const SYNC_DEADLINE_MS = 10_000;
/** A frozen file system blocks every program that writes to it. */
const FREEZE_DEADLINE_MS = 10_000;
const GROW_DEADLINE_MS = 60_000;
/** The longest that the agent accepts. */
const UNMOUNT_DEADLINE_MS = 10_000;
/** Added to what the agent is given. */
const ANSWER_MS = 5000;

const Synced = z.object({ done: z.boolean() });
const Frozen = z.object({ frozen: z.boolean() });
const Thawed = z.object({ was_frozen: z.boolean() });

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

/**
 * Runs `work` while the file system is consistent and nothing writes to it. Throws `unavailable` if that cannot be had, also
 * after the work.
 */
export async function whileFrozen<T>(session: Session, work: () => Promise<T>): Promise<T> {
  const how = { timeoutMs: FREEZE_DEADLINE_MS + ANSWER_MS };
  const body = { deadline_ms: FREEZE_DEADLINE_MS };
  const { frozen } = Frozen.parse(await session.call('POST', '/workspace/freeze', body, how));
  if (!frozen) throw notFrozen();
  let wasFrozen = false;
  const result = await work().finally(async () => {
    ({ was_frozen: wasFrozen } = Thawed.parse(await session.call('POST', '/workspace/thaw', {}, how)));
  });
  if (!wasFrozen) throw notFrozen();
  return result;
}

function notFrozen(): AppError {
  return new AppError(
    'unavailable',
    'the file system of the disk could not be frozen in time; try again, or without sync',
  );
}

/** Unmounts a disk of which the guest keeps nothing. Ends the processes that use it. */
export async function unmountWorkspace(session: Session): Promise<void> {
  const how = { timeoutMs: UNMOUNT_DEADLINE_MS + ANSWER_MS };
  await session.call('POST', '/workspace/unmount', { deadline_ms: UNMOUNT_DEADLINE_MS, abandon: true }, how);
}

/** Grows the file system to the size of the device. */
export async function growWorkspace(session: Session, sizeBytes: number): Promise<void> {
  const how = { timeoutMs: GROW_DEADLINE_MS };
  await session.call('POST', '/workspace/grow', { size_bytes: sizeBytes }, how);
}
