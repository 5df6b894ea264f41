/**
 * Reconciles the records of disks with the runner, again and again:
 *
 *     row `creating` or `deleting` without an operation ─► removed, with its disk or its version
 *     row with a size that it has not reached           ─► grown
 *     row `detaching`                                   ─► free, when the runner no longer holds it (detachments.ts)
 *
 * Once an hour, and when data has changed, it measures what each disk stores (billing), and has the runner delete
 * objects that no disk refers to. With many controls each does the work that it has begun, and frees the disks of its runners. The
 * leading one measures and collects, and does what controls that are gone have left.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { Clock } from '../time/clock.ts';
import type { Detachments } from './detachments.ts';
import type { DiskSnapshots } from './disk-snapshots.ts';
import type { DiskRow } from './disk-tables.ts';
import { addressOf, type DiskWork } from './disk-work.ts';
import type { Disks } from './disks.ts';
import { giveBackLeft } from './held-disk.ts';

const HOUR_MS = 3_600_000;
const RETRY_MS = 60_000;

export interface DiskKeeperParts {
  work: DiskWork;
  disks: Disks;
  snapshots: DiskSnapshots;
  detachments: Detachments;
  clock: Clock;
  intervalMs: number;
  log: Logger;
}

export class DiskKeeper implements AsyncDisposable {
  readonly #parts: DiskKeeperParts;
  readonly #stop = new AbortController();
  /** When the objects of each organization were last collected. */
  readonly #collected = new Map<string, number>();
  /** When each disk is measured again whose measurement has failed. */
  readonly #retryAt = new Map<string, number>();
  #loop: Promise<void> = Promise.resolve();

  constructor(parts: DiskKeeperParts) {
    this.#parts = parts;
  }

  /** Call before any sandbox is resumed. */
  async start(): Promise<void> {
    await giveBackLeft(this.#parts.work.parts.db);
    await this.#parts.detachments.load();
    this.#loop = this.#run();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    const { intervalMs } = this.#parts;
    while (!signal.aborted) {
      await delay(intervalMs, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      await this.#try('detachments', () => this.#resolveDetachments());
      await this.#try('disks', () => this.#resolveInterrupted());
      await this.#try('snapshots of disks', () => this.#parts.snapshots.resolveInterrupted());
      await this.#try('growth of disks', () => this.#resolveGrowth());
      if (this.#parts.work.parts.ownership.isLeading)
        await this.#try('measurements of disks', () => this.#measure());
      await this.#try('collections', () => this.#collect());
    }
  }

  async #resolveDetachments(): Promise<void> {
    await giveBackLeft(this.#parts.work.parts.db);
    await this.#parts.detachments.load();
  }

  async #resolveInterrupted(): Promise<void> {
    const { work } = this.#parts;
    // Forks first: a disk cannot be removed while one exists.
    const rows = (await work.store.listUnsettled(work.parts.ownership)).toSorted(
      (a, b) => b.created_at - a.created_at,
    );
    for (const row of rows) {
      if (work.underWay.has(row.id)) continue;
      await work.underWay.run(row.id, () => work.eraseOrLeave(row, ['creating', 'deleting']));
    }
  }

  async #resolveGrowth(): Promise<void> {
    const { work, disks } = this.#parts;
    for (const row of await work.store.listGrowing(work.parts.ownership))
      if (!work.underWay.has(row.id)) await work.underWay.run(row.id, () => disks.resolveGrowth(row));
  }

  async #measure(): Promise<void> {
    const { work } = this.#parts;
    for (const row of await work.store.listToMeasure(work.nowMs - HOUR_MS)) {
      if (this.#stop.signal.aborted) return;
      await this.#try('measurement', () => this.#measureOne(row));
    }
  }

  async #measureOne(row: DiskRow): Promise<void> {
    const { work, clock } = this.#parts;
    const now = clock.monotonicMs();
    if (now < (this.#retryAt.get(row.id) ?? 0)) return;
    this.#retryAt.set(row.id, now + RETRY_MS);
    const { stored_bytes: bytes } = await (await work.runnerOf(addressOf(row))).measure(addressOf(row));
    await work.store.noteStored(row.id, { bytes, version: row.version }, work.nowMs);
    this.#retryAt.delete(row.id);
  }

  async #collect(): Promise<void> {
    const { work, clock, log } = this.#parts;
    const now = clock.monotonicMs();
    for (const organizationId of await work.store.listOrganizations()) {
      const since = this.#collected.get(organizationId);
      const isDue = work.parts.ownership.isLeading && (since === undefined || now - since >= HOUR_MS);
      if (!isDue && !work.withGarbage.has(organizationId)) continue;
      work.withGarbage.delete(organizationId);
      this.#collected.set(organizationId, now);
      const { deleted_objects: objects, deleted_bytes: bytes } = await work.parts.runners
        .any()
        .client.disks.collect(organizationId);
      if (objects > 0)
        log.info({ organization_id: organizationId, objects, bytes }, 'objects of disks were deleted');
    }
  }

  async #try(what: string, act: () => Promise<void>): Promise<void> {
    try {
      await act();
    } catch (error) {
      this.#parts.log.warn(
        { err: error },
        `${what} could not be reconciled with the runner; control tries again`,
      );
    }
  }
}
