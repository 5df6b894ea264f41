/**
 * The overlays of a running VM's disk. Each capture freezes the topmost and puts a new one on it; frozen ones are
 * shared with whoever was made from the capture, so nothing is ever written down into them. A chain that grew long is
 * copied upward into the VM's own overlay in the background, and the VM lets go of the rest.
 *
 *   base ◄ 0 ◄ 1 ◄ … ◄ n        prepare ─► n+1 opened ─► put on top: n is frozen
 *   base ◄ n                    after flattening
 */
import type { Logger } from 'pino';
import { AppError } from '@coppice/contract';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import { enterStep } from '../vm/steps.ts';
import type { VmHandle } from '../vm/vmm.ts';
import type { VmDirectory } from './vm-directory.ts';

/** Every read that the upper ones do not have asks each of the lower ones. */
const LONG_CHAIN = 6;
/** Of a VM that has just been made from a capture: many may be, and each would copy the same. */
const LONG_CHAIN_OF_COPY = 12;
/** QEMU opens two files' worth of nodes for each; a capture waits rather than pass this. */
const MAX_CHAIN = 24;
const FLATTEN_WAIT_MS = 120_000;
const MIB = 1024 * 1024;

export interface OverlayChainParts {
  vm: VmHandle;
  directory: VmDirectory;
  uid: number;
  /** Of the disk. */
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

  /** Of a VM that an earlier process drove; what that one had begun is taken back. */
  static async adopt(parts: OverlayChainParts): Promise<OverlayChain> {
    await parts.vm.stopFlattening();
    const numbers = await parts.vm.readChain();
    const chain = new OverlayChain(numbers, parts);
    // From the highest: each may be the backing of the one above it.
    for (const number of parts.directory.listOverlays().toReversed())
      if (!numbers.includes(number)) await chain.drop(number);
    for (const number of numbers.slice(0, -1)) parts.directory.freezeOverlay(number);
    return chain;
  }

  /** From the lowest to the topmost. */
  get numbers(): readonly number[] {
    return this.#numbers;
  }

  get #top(): number {
    const top = this.#numbers.at(-1);
    if (top === undefined) throw new Error('a VM has at least one overlay');
    return top;
  }

  /** Makes the disk larger. The guest, which has to be running, is told; what is on the disk does not grow with it. */
  async grow(sizeMiB: number): Promise<void> {
    await this.#parts.vm.resizeOverlay(this.#top, sizeMiB * MIB);
    this.#sizeMiB = sizeMiB;
  }

  /** Opens the overlay that will be the topmost, while the guest runs. Nothing is copied upward from here on. */
  async prepare(): Promise<number> {
    await this.settle();
    const { directory, uid, vm } = this.#parts;
    const number = this.#top + 1;
    try {
      directory.addOverlay(number, { sizeMiB: this.#sizeMiB, uid });
      await vm.openOverlay(number);
      return number;
    } catch (error) {
      await this.drop(number);
      throw error;
    }
  }

  /** Ends flattening; a chain that is too long is waited for. */
  async settle(): Promise<void> {
    if (this.#flattening === undefined && this.#numbers.length >= MAX_CHAIN) this.flattenIfLong();
    if (this.#flattening === undefined) return;
    if (this.#numbers.length < MAX_CHAIN) await this.#parts.vm.stopFlattening();
    await withDeadline('joining the layers of the disk', FLATTEN_WAIT_MS, this.#flattening);
    if (this.#numbers.length >= MAX_CHAIN)
      throw new AppError(
        'capacity',
        'the layers of the sandbox’s disk are still being joined; try again later',
      );
  }

  /** Puts a prepared overlay on top, while the guest stands still. */
  async push(number: number): Promise<void> {
    await this.#parts.vm.putOnTop(number, this.#top);
    this.#parts.directory.freezeOverlay(this.#top);
    this.#numbers = [...this.#numbers, number];
  }

  /** Closes and removes an overlay that is not part of the chain. Its file goes last: what is open has one. */
  async drop(number: number): Promise<void> {
    await this.#parts.vm.closeOverlay(number);
    await enterStep('overlay.remove');
    this.#parts.directory.removeOverlay(number);
  }

  /** In the background. */
  flattenIfLong({ isNewCopy = false } = {}): void {
    const limit = isNewCopy ? LONG_CHAIN_OF_COPY : LONG_CHAIN;
    if (this.#numbers.length <= limit || this.#flattening !== undefined || this.#isClosed) return;
    const { log } = this.#parts;
    this.#flattening = this.#flatten()
      .catch((error: unknown) => {
        if (!this.#isClosed) log.info({ err: error }, 'the layers of a disk were not joined');
      })
      .finally(() => {
        this.#flattening = undefined;
      });
  }

  async #flatten(): Promise<void> {
    const top = this.#top;
    const lower = this.#numbers.slice(0, -1);
    await this.#parts.vm.flatten(top);
    this.#numbers = [top];
    for (const number of lower.toReversed()) await this.drop(number);
  }

  /** The VM goes, or another process drives it on. */
  close(): void {
    this.#isClosed = true;
  }
}
