/**
 * Disks of sandboxes that have ended or are hibernated. Each is free again when the runner no longer holds it. Until
 * then the runner is asked again and again, less often each time.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { DiskState } from '../../lib/protocol/disk-protocol.ts';
import type { Database } from '../db/database.ts';
import type { RunnerDisks } from '../placement/runner-disks.ts';
import {
  findDetaching,
  freeDisk,
  giveBack,
  isDetaching,
  listDetaching,
  type DetachingRow,
} from './held-disk.ts';
import { enterDiskStep } from './steps.ts';

const FIRST_DELAY_MS = 25;

/** State of a disk that is being detached, as the runner last reported it. */
export interface Detaching {
  /** Null until the runner has answered. */
  dirtyBytes: number | null;
  waitsFor: string | null;
}

export interface DetachmentsParts {
  db: Database;
  runnerOf: (disk: { disk: string }) => Promise<RunnerDisks>;
  /** Id of this control. */
  control: string;
  /** Longest time between two questions. */
  maxDelayMs: number;
  log: Logger;
  onState: (id: string, state: DiskState) => Promise<void>;
}

interface Entry extends Detaching {
  row: DetachingRow;
  ended: Promise<void>;
}

export class Detachments implements AsyncDisposable {
  readonly #parts: DetachmentsParts;
  /** By sandbox. */
  readonly #entries = new Map<string, Entry>();
  /** Sandboxes whose failed resume could not be undone in SQL. */
  readonly #toGiveBack = new Set<string>();
  readonly #stop = new AbortController();

  constructor(parts: DetachmentsParts) {
    this.#parts = parts;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await Promise.all([...this.#entries.values()].map(({ ended }) => ended));
  }

  find(sandboxId: string): Detaching | undefined {
    return this.#entries.get(sandboxId);
  }

  /** Follows a disk until it is free. Call when the record says that it is being detached. */
  begin(row: DetachingRow): void {
    if (this.#entries.has(row.sandbox_id) || this.#stop.signal.aborted) return;
    const entry: Entry = { row, dirtyBytes: null, waitsFor: null, ended: Promise.resolve() };
    this.#entries.set(row.sandbox_id, entry);
    entry.ended = this.#follow(entry).finally(() => this.#entries.delete(row.sandbox_id));
  }

  /** Follows the disks that are being detached from runners of this control, according to their records. */
  async load(): Promise<void> {
    for (const sandboxId of this.#toGiveBack) {
      await giveBack(this.#parts.db, sandboxId);
      this.#toGiveBack.delete(sandboxId);
    }
    for (const row of await listDetaching(this.#parts.db, this.#parts.control)) this.begin(row);
  }

  /** Makes the disk of a resume that failed free again. Does not throw: it is tried again until it succeeds. */
  async giveBack(sandboxId: string): Promise<void> {
    this.#toGiveBack.add(sandboxId);
    await this.load().catch((error: unknown) =>
      this.#parts.log.warn(
        { err: error, sandbox_id: sandboxId },
        'the disk of a failed resume is freed later',
      ),
    );
  }

  /** Resolves when the disk of this sandbox, of a runner of this control, is free, or after the deadline. */
  async wait(sandboxId: string, deadlineMs: number): Promise<void> {
    const entry = this.#entries.get(sandboxId) ?? (await this.#find(sandboxId));
    if (entry === undefined) return;
    const timer = new AbortController();
    const late = delay(deadlineMs, undefined, { signal: timer.signal }).catch(() => undefined);
    await Promise.race([entry.ended, late]);
    timer.abort();
  }

  /** Begins to follow a disk that an earlier process or another control has left. */
  async #find(sandboxId: string): Promise<Entry | undefined> {
    const row = await findDetaching(this.#parts.db, sandboxId);
    if (row !== undefined) this.begin(row);
    return this.#entries.get(sandboxId);
  }

  async #follow(entry: Entry): Promise<void> {
    const { signal } = this.#stop;
    const { maxDelayMs, log } = this.#parts;
    for (let delayMs = FIRST_DELAY_MS; !signal.aborted; delayMs = Math.min(2 * delayMs, maxDelayMs)) {
      try {
        if (await this.#look(entry)) return;
      } catch (error) {
        log.debug(
          { err: error, disk_id: entry.row.id },
          'the runner is asked later whether a disk is detached',
        );
      }
      await delay(delayMs, undefined, { signal }).catch(() => undefined);
    }
  }

  /** Frees the disk if the runner no longer holds it for the sandbox. Returns true when it is no longer detaching. */
  async #look(entry: Entry): Promise<boolean> {
    const { id, organization_id, sandbox_id } = entry.row;
    const { db, runnerOf, onState } = this.#parts;
    const address = { organization: organization_id, disk: id };
    const state = await findState(await runnerOf(address), address);
    if (state !== undefined) await onState(id, state);
    if (state?.attachment?.vm_id === sandbox_id) {
      entry.dirtyBytes = state.attachment.dirty_bytes;
      entry.waitsFor = state.attachment.waits_for;
      // A sandbox that is resumed has taken it back.
      return !(await isDetaching(db, entry.row));
    }
    await enterDiskStep('disk.free');
    await freeDisk(db, id, sandbox_id);
    return true;
  }
}

/** Returns undefined if the runner has no such disk: it was never made, or is deleted. */
async function findState(
  runner: RunnerDisks,
  address: { organization: string; disk: string },
): Promise<DiskState | undefined> {
  try {
    return await runner.get(address);
  } catch (error) {
    if (error instanceof AppError && error.code === 'not_found') return undefined;
    throw error;
  }
}
