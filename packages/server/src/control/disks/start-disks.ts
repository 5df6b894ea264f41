/** Assembles the parts of control that manage disks, and starts to reconcile them with the runner. */
import type { ControlLimits } from '../control-config.ts';
import { Detachments } from './detachments.ts';
import { DiskKeeper } from './disk-keeper.ts';
import { DiskSnapshots } from './disk-snapshots.ts';
import { DiskWork, type DiskWorkParts } from './disk-work.ts';
import { Disks } from './disks.ts';
import { SandboxDisks } from './sandbox-disks.ts';

const MAX_DETACH_DELAY_MS = 5_000;

export async function startDisks(
  parts: DiskWorkParts & { limits: ControlLimits },
  stack: AsyncDisposableStack,
): Promise<{ disks: Disks; snapshots: DiskSnapshots; sandboxDisks: SandboxDisks }> {
  const { db, ownership, clock, limits, log } = parts;
  const { reconcileIntervalMs: intervalMs, diskDetachDeadlineMs: detachDeadlineMs } = limits;
  const work = new DiskWork(parts);
  const disks = new Disks(work);
  const snapshots = new DiskSnapshots(work);
  const detachments = stack.use(
    new Detachments({
      db,
      runnerOf: (disk) => work.runnerOf(disk),
      control: ownership.id,
      maxDelayMs: Math.min(MAX_DETACH_DELAY_MS, intervalMs),
      log,
      onState: (id, state) => work.store.noteState(id, state),
    }),
  );
  const keeper = stack.use(new DiskKeeper({ work, disks, snapshots, detachments, clock, intervalMs, log }));
  await keeper.start();
  return { disks, snapshots, sandboxDisks: new SandboxDisks({ work, detachments, db, detachDeadlineMs }) };
}
