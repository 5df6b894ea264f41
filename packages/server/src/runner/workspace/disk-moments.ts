/** Snapshots and forks of the disk of one moment, made while nothing later is drained. */
import { AppError } from '@coppice/contract';
import type { z } from 'zod';
import type { CapturedWorkspace } from '../../lib/protocol/disk-protocol.ts';
import { DiskManifest, Nothing } from './block-requests.ts';
import { BlockServerError, type BlockRequest } from './block-server.ts';
import type { SealedMoment } from './sealed-moment.ts';

/** Asks the block server about one disk. */
export type DiskServer = <T>(
  request: BlockRequest,
  answer: z.ZodType<T>,
  how?: { timeoutMs: number },
) => Promise<T>;

/** The disk of an attachment. */
interface HeldDisk {
  server: DiskServer;
  record: { organization: string; disk: string };
}

/** Names the disk of a moment, so that its version is kept. A repetition gives the version that has the name already. */
export function keepMoment(held: HeldDisk, moment: SealedMoment, name: string): Promise<CapturedWorkspace> {
  return moment.drain(async () => captured(held, await held.server({ op: 'snapshot', name }, DiskManifest)));
}

/**
 * As {@link keepMoment}, for memory of the same moment: the version that an interrupted attempt named is of another moment,
 * and is replaced. Keeps nothing once `signal` is aborted.
 */
export function keepMomentAnew(
  held: HeldDisk,
  moment: SealedMoment,
  { name, signal }: { name: string; signal: AbortSignal },
): Promise<CapturedWorkspace> {
  return moment.drain(async (drained) =>
    captured(held, await snapshotAnew(held.server, { name, drained, signal })),
  );
}

function captured({ record }: HeldDisk, { version, size_bytes }: DiskManifest): CapturedWorkspace {
  const { organization, disk } = record;
  return { organization, disk, version, size_bytes };
}

/** Makes new disks from the disk of a moment. Returns the versions that they begin with. */
export function forkMoment(
  { server }: HeldDisk,
  moment: SealedMoment,
  disks: readonly string[],
): Promise<number[]> {
  return moment.drain((version) => forkAll(server, version, disks));
}

/**
 * Names the head, whose content is that of version `drained`. A version that has the name already is of an earlier moment,
 * and is replaced. Keeps nothing once `signal` is aborted.
 */
async function snapshotAnew(
  ask: DiskServer,
  { name, drained, signal }: { name: string; drained: number; signal: AbortSignal },
): Promise<DiskManifest> {
  signal.throwIfAborted();
  const snapshot = (): Promise<DiskManifest> => ask({ op: 'snapshot', name }, DiskManifest);
  const remove = ({ version }: DiskManifest): Promise<unknown> =>
    ask({ op: 'remove_snapshot', version }, Nothing);
  let kept = await snapshot();
  if (kept.version < drained) {
    await remove(kept);
    kept = await snapshot();
  }
  if (signal.aborted) await remove(kept);
  signal.throwIfAborted();
  return kept;
}

/** Makes new disks from a version. Returns the versions that they begin with. */
async function forkAll(ask: DiskServer, version: number, disks: readonly string[]): Promise<number[]> {
  const forks = disks.map((to) => ask({ op: 'fork', version, to }, DiskManifest));
  const made = await Promise.all(forks).catch((error: unknown) => {
    throw explainFork(error);
  });
  return made.map((fork) => fork.version);
}

/** A disk that exists was made by an attempt that was interrupted, so it is of another moment than the memory. */
function explainFork(error: unknown): unknown {
  if (!(error instanceof BlockServerError) || error.reason !== 'exists') return error;
  return new AppError('guest_unreachable', 'the fork was interrupted; try again', { cause: error });
}
