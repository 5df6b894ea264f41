/**
 * Memory for the output of commands whose callers wait for the whole answer (exec). Half of it holds floors, half holds
 * output beyond the floors:
 *
 *     total 512 MiB ─┬─ floors 256 MiB   64 KiB of each stream, reserved before the command starts
 *                    └─ growth 256 MiB   in blocks of 64 KiB, as the output comes, up to the limit of a stream
 *
 * In each half an organization may hold no more than is still free. Alone it gets at most half. After n greedy
 * organizations, which hold 1/(n+1) each, the next one still finds 1/(n+1) free and may take half of that. When growth
 * is refused, the output is cut and the answer says so. When a floor is refused, the command does not start. So the
 * commands of other organizations never make an answer empty.
 *
 * Arithmetic: floors have room for 256 MiB / (2 × 64 KiB) = 2048 commands, 1024 of one organization that is alone. 256
 * open requests, the default limit of an organization, take 32 MiB of floors: seven organizations can be at their limit
 * at once and an eighth still starts commands. Floors also bound a limit that the operator sets higher.
 */
import { AppError } from '@coppice/contract';
import { BLOCK_BYTES, OutputCapture } from './output-capture.ts';

const STREAMS = 2;
export const COMMAND_FLOOR_BYTES = STREAMS * BLOCK_BYTES;

/** Holds the output of one command. Disposing it releases the memory. */
export interface HeldOutput extends Disposable {
  readonly stdout: OutputCapture;
  readonly stderr: OutputCapture;
}

export class OutputBudget {
  readonly #floors: FairPool;
  readonly #growth: FairPool;

  constructor(totalBytes: number) {
    const half = Math.floor(totalBytes / 2);
    // A smaller budget would refuse the first commands of a second organization.
    if (half < 4 * COMMAND_FLOOR_BYTES)
      throw new RangeError(`${totalBytes} bytes have no room for the floors of two organizations' commands`);
    this.#floors = new FairPool(half);
    this.#growth = new FairPool(half);
  }

  /** Number of commands that an organization can run at once while no other runs any. */
  get commandsOfOne(): number {
    return Math.floor(this.#floors.totalBytes / 2 / COMMAND_FLOOR_BYTES);
  }

  /** Reserves the floors of a command that is about to start. Throws `capacity` if there is no room for them. */
  open(organizationId: string, maxStreamBytes: number): HeldOutput {
    if (!this.#floors.take(organizationId, COMMAND_FLOOR_BYTES))
      throw new AppError(
        'capacity',
        'the output of too many commands is being collected; try again later, or use exec/stream, which collects none',
      );
    const growth = {
      take: () => this.#growth.take(organizationId, BLOCK_BYTES),
      give: () => this.#growth.give(organizationId, BLOCK_BYTES),
    };
    const stdout = new OutputCapture(growth, maxStreamBytes);
    const stderr = new OutputCapture(growth, maxStreamBytes);
    let isOpen = true;
    return {
      stdout,
      stderr,
      [Symbol.dispose]: () => {
        if (!isOpen) return;
        isOpen = false;
        stdout[Symbol.dispose]();
        stderr[Symbol.dispose]();
        this.#floors.give(organizationId, COMMAND_FLOOR_BYTES);
      },
    };
  }
}

/** Bytes that organizations share. Each may hold at most as many as are free. */
export class FairPool {
  readonly totalBytes: number;
  #freeBytes: number;
  readonly #held = new Map<string, number>();

  constructor(totalBytes: number) {
    this.totalBytes = totalBytes;
    this.#freeBytes = totalBytes;
  }

  /** Returns false and takes nothing if the organization would then hold more than is free. */
  take(organizationId: string, bytes: number): boolean {
    const held = (this.#held.get(organizationId) ?? 0) + bytes;
    const freeBytes = this.#freeBytes - bytes;
    if (held > freeBytes) return false;
    this.#freeBytes = freeBytes;
    this.#held.set(organizationId, held);
    return true;
  }

  give(organizationId: string, bytes: number): void {
    const held = (this.#held.get(organizationId) ?? 0) - bytes;
    if (held < 0) throw new RangeError('more bytes are given back than were taken');
    this.#freeBytes += bytes;
    if (held === 0) this.#held.delete(organizationId);
    else this.#held.set(organizationId, held);
  }
}
