/**
 * Reconciles the captures of a runner with the records. A capture that no record names, of an unfinished snapshot or of a
 * sandbox that was resumed or destroyed, is removed after a grace. Unfinished records of snapshots are removed, too, and
 * expired snapshots. A finished record whose capture is missing stays, and its use fails with the cause: a disk that is
 * not mounted yet must not cost a user a snapshot.
 */
import type { Logger } from 'pino';
import type { CaptureInfo } from '../../lib/protocol/runner-protocol.ts';
import type { Leadership } from '../ownership/leadership.ts';
import type { OwnedRunner } from '../runners/owned-runner.ts';
import type { Clock } from '../time/clock.ts';
import type { SandboxStore } from '../sandbox/record/sandbox-store.ts';
import type { SnapshotStore } from './snapshot-store.ts';
import type { Snapshots } from './snapshots.ts';

export interface CaptureKeeperParts {
  runner: OwnedRunner;
  leadership: Leadership;
  snapshots: Snapshots;
  store: SnapshotStore;
  sandboxes: Pick<SandboxStore, 'filterHibernations'>;
  clock: Clock;
  graceMs: number;
  log: Logger;
}

export class CaptureKeeper {
  readonly #parts: CaptureKeeperParts;
  /** Captures that no record names, and the monotonic time at which each was first seen. */
  #orphans = new Map<string, number>();

  constructor(parts: CaptureKeeperParts) {
    this.#parts = parts;
  }

  async reconcile(): Promise<void> {
    const { snapshots, runner, leadership, clock, graceMs } = this.#parts;
    const at = { runnerId: runner.id, andStored: leadership.isLeading };
    await snapshots.resolveInterrupted(at);
    await snapshots.deleteExpired(at);
    const now = clock.monotonicMs();
    const orphans = await this.#findOrphans(await runner.client.captures.list());
    this.#orphans = new Map(orphans.map(({ id }) => [id, this.#orphans.get(id) ?? now]));
    for (const [id, since] of this.#orphans) if (now - since >= graceMs) await this.#remove(id);
  }

  /** A record names its capture before the runner begins to make it. */
  async #findOrphans(captures: readonly CaptureInfo[]): Promise<CaptureInfo[]> {
    const { store, sandboxes } = this.#parts;
    const idsOf = (kind: CaptureInfo['kind']): string[] =>
      captures.filter((one) => one.kind === kind).map(({ id }) => id);
    const snapshots = await store.findKnown(idsOf('snapshot'));
    const hibernations = await sandboxes.filterHibernations(idsOf('hibernation'));
    return captures.filter(({ id }) => !snapshots.has(id) && !hibernations.has(id));
  }

  async #remove(id: string): Promise<void> {
    const { log, runner } = this.#parts;
    log.warn({ capture_id: id }, 'a capture that no record names is removed');
    try {
      await runner.client.captures.remove(id);
      this.#orphans.delete(id);
    } catch (error) {
      log.warn({ err: error, capture_id: id }, 'the capture could not be removed; control tries again');
    }
  }
}
