/**
 * Records which VMs a round of reconciliation has seen. SQL gets one moment for all sandboxes of a runner, and of a sandbox only
 * the use that has changed: a row for each sandbox and round would be all that PostgreSQL has time for.
 *
 *     all that run are there ─► runners.seen_at, since when each of them is known to have run
 *     one is missing         ─► sandboxes.last_seen_at of the others; that of the runner stays as it was
 */
import type { HostMoment } from '../../lib/host-clock.ts';
import type { RunnerClaims } from '../ownership/runner-claims.ts';
import type { OwnedRunner } from '../runners/owned-runner.ts';
import type { SandboxDriver } from './live/sandbox-driver.ts';
import type { SandboxStore } from './record/sandbox-store.ts';

export interface SeenRoundParts {
  runner: OwnedRunner;
  store: Pick<SandboxStore, 'recordUses' | 'recordSeen'>;
  claims: Pick<RunnerClaims, 'noteRound'>;
}

export interface SeenRound {
  /** Sandboxes that ran before the VMs were listed. */
  before: readonly SandboxDriver[];
  /** All sandboxes of the runner now. */
  now: readonly SandboxDriver[];
  /** Ids of the VMs that the runner has. */
  vms: ReadonlySet<string>;
  /** When it had them. */
  seenAt: HostMoment;
}

export async function recordRound(
  { runner, store, claims }: SeenRoundParts,
  { before, now, vms, seenAt }: SeenRound,
): Promise<void> {
  const isAbsent = ({ row }: SandboxDriver): boolean => row.status === 'running' && !vms.has(row.id);
  const seen = now.filter(({ row }) => row.status === 'running' && vms.has(row.id));
  const isMissing = before.some(isAbsent);
  for (const { live } of seen) live.noteSeen(seenAt);
  const used = seen.flatMap(({ row: { id }, live }) => {
    const use = live.unrecordedUse;
    return use === undefined ? [] : [{ id, live, use }];
  });
  await store.recordUses(used.map(({ id, use }) => ({ id, ...use })));
  for (const { live, use } of used) live.noteRecorded(use);
  if (isMissing)
    await store.recordSeen(
      seen.map(({ row }) => row.id),
      seenAt,
    );
  // The moment also counts for those that have just started, so it waits for a round that has seen them.
  const isOfAll = !isMissing && !now.some(isAbsent);
  await claims.noteRound(runner.id, { free: runner.free, seenAt: isOfAll ? seenAt : undefined });
}
