/**
 * Keeps slots ready, hands them out and takes them back. One worker makes all changes of the kernel's state, in
 * batches, the most urgent first; callers wait for its result.
 */
import { AppError } from '@coppice/contract';
import { setImmediate } from 'node:timers/promises';
import type { Logger } from 'pino';
import { withDeadline } from '../../../lib/waiting/deadline.ts';
import { SlotLedger } from './slot-ledger.ts';

/** After this time no packets for the former owner of an address are in transit. */
const QUARANTINE_MS = 3000;
const ACQUIRE_TIMEOUT_MS = 15_000;
const RETRY_DELAY_MS = 1000;
const BATCH_LIMIT = 16;

export interface SlotPoolOptions {
  capacity: number;
  /** Number of slots kept ready. */
  size: number;
  /** Slots that exist on the host already. */
  found: readonly number[];
  create(indexes: readonly number[]): Promise<void>;
  /** Removes slots, also half-made ones. */
  remove(indexes: readonly number[]): Promise<void>;
  /** Checks the resources that all slots share, before the first change and whenever they are in doubt. */
  restore(): Promise<void>;
  log: Logger;
}

export class SlotPool {
  readonly #options: SlotPoolOptions;
  readonly #ledger: SlotLedger;
  readonly #waiting = new Map<string, PromiseWithResolvers<number>>();
  readonly #removals = new Map<number, PromiseWithResolvers<void>>();
  #work: Promise<void> | undefined;
  #retry: NodeJS.Timeout | undefined;
  #isAsked = false;
  #isInDoubt = true;
  #isClosed = false;

  constructor(options: SlotPoolOptions) {
    this.#options = options;
    this.#ledger = new SlotLedger({ ...options, quarantineMs: QUARANTINE_MS });
    this.#wake();
  }

  /** Returns the VM's slot, the same one if it has one already. Throws `capacity` when no slot is free. */
  async acquire(vmId: string, avoid?: number): Promise<number> {
    this.#assertOpen();
    const index =
      this.#ledger.findByVm(vmId) ?? this.#ledger.lease(vmId, avoid) ?? (await this.#waitForSlot(vmId));
    this.#wake();
    return index;
  }

  findByVm(vmId: string): number | undefined {
    return this.#ledger.findByVm(vmId);
  }

  /** Returns false when the slot was not found at the start, or belongs to another VM. */
  adopt(vmId: string, index: number): boolean {
    this.#assertOpen();
    return this.#ledger.adopt(vmId, index);
  }

  /** Removes the found slots that were not adopted, and returns them. */
  sweepUnadopted(): number[] {
    const unadopted = this.#ledger.list('found');
    this.#ledger.discard(unadopted);
    this.#wake();
    return unadopted;
  }

  /** Settles when the slot is removed; after a rejection the removal is retried in the background. */
  async release(vmId: string): Promise<void> {
    this.#waiting
      .get(vmId)
      ?.reject(new AppError('invalid_state', 'the network slot was released while it was made'));
    this.#waiting.delete(vmId);
    const index = this.#ledger.release(vmId);
    if (index === undefined || this.#isClosed) return;
    const removal = Promise.withResolvers<void>();
    this.#removals.set(index, removal);
    this.#wake();
    await removal.promise;
  }

  /** Reports that the resources that all slots share may be gone. */
  doubt(): void {
    this.#isInDoubt = true;
    this.#wake();
  }

  /** Ends the worker; slots stay as they are. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#retry);
    const reason = new AppError('unavailable', 'the guest network is closing');
    this.#rejectWaiting(reason);
    await this.#work;
    for (const index of this.#removals.keys()) this.#settleRemoval(index, reason);
  }

  listPresent(): number[] {
    return this.#ledger.listPresent();
  }

  async #waitForSlot(vmId: string): Promise<number> {
    const waiting = this.#waiting.get(vmId) ?? Promise.withResolvers<number>();
    this.#waiting.set(vmId, waiting);
    this.#wake();
    return await withDeadline('making a network slot', ACQUIRE_TIMEOUT_MS, waiting.promise, () => {
      this.#waiting.delete(vmId);
    });
  }

  /** Starts the worker, or makes it check for work once more before it ends. */
  #wake(): void {
    this.#isAsked = true;
    if (this.#isClosed || this.#work !== undefined) return;
    clearTimeout(this.#retry);
    this.#work = this.#run();
  }

  async #run(): Promise<void> {
    // Starting a process blocks this thread for milliseconds: let the caller continue, so that its next requests join.
    await setImmediate();
    const nextAtMs = await this.#workUntilDone();
    this.#work = undefined;
    if (this.#isClosed) return;
    // A request came after the worker's last check.
    if (this.#isAsked) return this.#wake();
    if (nextAtMs === undefined) return;
    this.#retry = setTimeout(() => this.#wake(), Math.max(1, nextAtMs - performance.now()));
    this.#retry.unref();
  }

  /** Works until nothing is left. Returns the time of the next work, if known. Never rejects. */
  async #workUntilDone(): Promise<number | undefined> {
    while (!this.#isClosed) {
      this.#isAsked = false;
      try {
        if (!(await this.#workOnce()) && !this.#isAsked) return this.#planNext();
      } catch (error) {
        this.#options.log.error({ err: error }, 'guest network: a change failed; trying again');
        this.#isAsked = false;
        return performance.now() + RETRY_DELAY_MS;
      }
    }
    return undefined;
  }

  /** Does one step; returns false when there is nothing to do. */
  async #workOnce(): Promise<boolean> {
    if (this.#isInDoubt) return await this.#restore();
    if (this.#waiting.size > 0 && (await this.#create(this.#waiting.size))) return true;
    if (await this.#removeReleased()) return true;
    return await this.#create(this.#options.size - this.#ledger.list('ready').length);
  }

  async #restore(): Promise<boolean> {
    this.#isInDoubt = false;
    try {
      await this.#options.restore();
    } catch (error) {
      this.#isInDoubt = true;
      throw error;
    }
    return true;
  }

  async #create(count: number): Promise<boolean> {
    const indexes = this.#ledger.reserve(Math.min(count, BATCH_LIMIT), performance.now());
    if (indexes.length === 0) return false;
    try {
      await this.#options.create(indexes);
    } catch (error) {
      this.#ledger.discard(indexes);
      this.#rejectWaiting(error);
      throw error;
    }
    for (const index of indexes) this.#ledger.prepared(index);
    this.#serveWaiting();
    return true;
  }

  #serveWaiting(): void {
    for (const [vmId, waiting] of this.#waiting) {
      const index = this.#ledger.lease(vmId);
      if (index === undefined) return;
      this.#waiting.delete(vmId);
      waiting.resolve(index);
    }
  }

  async #removeReleased(): Promise<boolean> {
    const indexes = this.#ledger.list('removing').slice(0, BATCH_LIMIT);
    if (indexes.length === 0) return false;
    try {
      await this.#options.remove(indexes);
    } catch (error) {
      for (const index of indexes) this.#settleRemoval(index, error);
      throw error;
    }
    for (const index of indexes) {
      this.#ledger.removed(index, performance.now());
      this.#settleRemoval(index, undefined);
    }
    return true;
  }

  #settleRemoval(index: number, error: unknown): void {
    const removal = this.#removals.get(index);
    this.#removals.delete(index);
    if (error === undefined) removal?.resolve();
    else removal?.reject(error);
  }

  /** Plans the next work. Rejects waiting callers when no slot is free and none will be soon. */
  #planNext(): number | undefined {
    const isShort = this.#waiting.size > 0 || this.#ledger.list('ready').length < this.#options.size;
    const nextFreeAtMs = this.#ledger.nextFreeAtMs();
    if (nextFreeAtMs === undefined && this.#waiting.size > 0) {
      this.#rejectWaiting(new AppError('capacity', 'all addresses for sandboxes on this machine are in use'));
    }
    return isShort ? nextFreeAtMs : undefined;
  }

  #rejectWaiting(error: unknown): void {
    for (const waiting of this.#waiting.values()) waiting.reject(error);
    this.#waiting.clear();
  }

  #assertOpen(): void {
    if (this.#isClosed) throw new AppError('unavailable', 'the guest network is closed');
  }
}
