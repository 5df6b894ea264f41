/**
 * The overlays of a running VM's disk. Each capture freezes the top overlay and puts a new one on it. Frozen overlays
 * are shared with the VMs made from the capture, so they are never written again. A long chain is flattened in the
 * background: the VMM copies it upward into the VM's own overlay, and the VM releases the others.
 *
 *   base ◄ 0 ◄ 1 ◄ … ◄ n        prepare ─► n+1 opened ─► put on top: n is frozen
 *   base ◄ n                    after flattening
 */
import type { Logger } from 'pino';
import { AppError } from '@coppice/contract';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import { enterStep } from '../vm/steps.ts';
import type { VmDisk } from '../vm/vmm.ts';
import type { VmDirectory } from './vm-directory.ts';
import { invariant } from '../../lib/invariant.ts';

/** A read that the upper overlays cannot serve asks each of the lower ones. */
const LONG_CHAIN = 6;
/** The limit for a new copy of a capture: there may be many, and each would copy the same data. */
const LONG_CHAIN_OF_COPY = 12;
/** The VMM has each overlay open. A capture waits rather than exceed this. */
const MAX_CHAIN = 24;
const FLATTEN_WAIT_MS = 120_000;
const MIB = 1024 * 1024;

export interface OverlayChainParts {
  disk: VmDisk;
  directory: VmDirectory;
  uid: number;
  /** Virtual size of the disk. */
  sizeMiB: number;
  log: Logger;
}

export class OverlayChain {
  readonly #parts: OverlayChainParts;
  #sizeMiB: number;
  #numbers: readonly number[];
  #flattening: Promise<void> | undefined;
  #isClosed = false;

  constructor(numbers: readonly number[], parts: OverlayChainParts) {
    this.#parts = parts;
    this.#sizeMiB = parts.sizeMiB;
    this.#numbers = numbers;
  }

  /** Opens the chain of a VM that an earlier process drove, and undoes what that process left unfinished. */
  static async adopt(parts: OverlayChainParts): Promise<OverlayChain> {
    await parts.disk.stopFlattening();
    const numbers = await parts.disk.listOverlays();
    const chain = new OverlayChain(numbers, parts);
    // Start with the highest: each may be the backing of the one above it.
    for (const number of parts.directory.listOverlays().toReversed())
      if (!numbers.includes(number)) await chain.drop(number);
    for (const number of numbers.slice(0, -1)) parts.directory.freezeOverlay(number);
    return chain;
  }

  /** Numbers of the overlays, lowest first. */
  get numbers(): readonly number[] {
    return this.#numbers;
  }

  get #top(): number {
    const top = this.#numbers.at(-1);
    invariant(top !== undefined, 'a VM has at least one overlay');
    return top;
  }

  /** Grows the disk and notifies the guest, which must be running. The file system on the disk does not grow. */
  async grow(sizeMiB: number): Promise<void> {
    await this.#parts.disk.grow(sizeMiB * MIB);
    this.#sizeMiB = sizeMiB;
  }

  /**
   * Creates and opens the next top overlay while the guest runs, and returns its number. Stops a running flatten first.
   * Throws `capacity` if a chain of the maximum length could not be flattened.
   */
  async prepare(): Promise<number> {
    await this.settle();
    const { directory, uid, disk } = this.#parts;
    const number = this.#top + 1;
    try {
      directory.addOverlay(number, { sizeMiB: this.#sizeMiB, uid });
      await disk.open(number);
      return number;
    } catch (error) {
      await this.drop(number);
      throw error;
    }
  }

  /** Stops flattening, or waits for it if the chain has the maximum length. */
  async settle(): Promise<void> {
    if (this.#flattening === undefined && this.#numbers.length >= MAX_CHAIN) this.flattenIfLong();
    if (this.#flattening === undefined) return;
    if (this.#numbers.length < MAX_CHAIN) await this.#parts.disk.stopFlattening();
    await withDeadline('flattening the layers of the disk', FLATTEN_WAIT_MS, this.#flattening);
    if (this.#numbers.length >= MAX_CHAIN)
      throw new AppError(
        'capacity',
        'the layers of the sandbox’s disk are still being flattened; try again later',
      );
  }

  /** Puts a prepared overlay on top. The guest must be stopped. */
  async push(number: number): Promise<void> {
    await this.#parts.disk.push(number);
    this.#parts.directory.freezeOverlay(this.#top);
    this.#numbers = [...this.#numbers, number];
  }

  /** Closes and removes an overlay outside the chain. Its file is removed last, so every open overlay has a file. */
  async drop(number: number): Promise<void> {
    await this.#parts.disk.close(number);
    await enterStep('overlay.remove');
    this.#parts.directory.removeOverlay(number);
  }

  /** Flattens a long chain in the background. */
  flattenIfLong({ isNewCopy = false } = {}): void {
    const limit = isNewCopy ? LONG_CHAIN_OF_COPY : LONG_CHAIN;
    if (this.#numbers.length <= limit || this.#flattening !== undefined || this.#isClosed) return;
    const { log } = this.#parts;
    this.#flattening = this.#flatten()
      .catch((error: unknown) => {
        if (!this.#isClosed) log.info({ err: error }, 'the layers of a disk were not flattened');
      })
      .finally(() => {
        this.#flattening = undefined;
      });
  }

  async #flatten(): Promise<void> {
    const top = this.#top;
    const lower = this.#numbers.slice(0, -1);
    await this.#parts.disk.flatten();
    this.#numbers = [top];
    for (const number of lower.toReversed()) await this.drop(number);
  }

  /** Called when the VM ends or another process takes it over. */
  close(): void {
    this.#isClosed = true;
  }
}
