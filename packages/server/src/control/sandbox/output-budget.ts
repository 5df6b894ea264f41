/**
 * Memory for the output of commands whose callers wait for the whole answer (exec). Half of it holds floors, half holds what
 * commands write beyond them:
 *
 *     total 512 MiB ─┬─ floors 256 MiB   64 KiB of each stream, reserved before the command starts
 *                    └─ growth 256 MiB   in blocks of 64 KiB, as the output comes, up to the limit of a stream
 *
 * In each half an organization may hold no more than is still free. Alone it gets at most a half of the half; beside n
 * greedy ones a share of 1/(n+2) is left for the next, so that none can use it up. Where growth is refused the output is cut
 * and says so. Where a floor is refused the command is not started: no answer is empty for what other organizations do.
 *
 * Arithmetic: floors have room for 256 MiB / (2 × 64 KiB) = 2048 commands, an organization alone for 1024. The default limit
 * of 256 open requests holds 32 MiB of floors: it is reached first until seven organizations are at it. A limit that
 * the operator sets higher is bounded by the floors.
 */
import { AppError } from '@coppice/contract';
import { BLOCK_BYTES, OutputCapture } from './output-capture.ts';

const STREAMS = 2;
export const COMMAND_FLOOR_BYTES = STREAMS * BLOCK_BYTES;

/** Where the output of one command is kept; disposing it gives the memory back. */
export interface HeldOutput extends Disposable {
  readonly stdout: OutputCapture;
  readonly stderr: OutputCapture;
}

export class OutputBudget {
  readonly #floors: FairPool;
  readonly #growth: FairPool;

  constructor(totalBytes: number) {
    const half = Math.floor(totalBytes / 2);
    // Two organizations with one command each.
    if (half < 4 * COMMAND_FLOOR_BYTES)
      throw new RangeError(`${totalBytes} bytes have no room for the floors of two organizations' commands`);
    this.#floors = new FairPool(half);
    this.#growth = new FairPool(half);
  }

  /** Commands of one organization at once whose floors fit while no other has any. */
  get commandsOfOne(): number {
    return Math.floor(this.#floors.totalBytes / 2 / COMMAND_FLOOR_BYTES);
  }

  /** Reserves the floors of a command that is about to start; throws `capacity` when there is no room for them. */
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

/** Bytes that organizations share: each may hold as many as are free. */
export class FairPool {
  readonly totalBytes: number;
  #freeBytes: number;
  readonly #held = new Map<string, number>();

  constructor(totalBytes: number) {
    this.totalBytes = totalBytes;
    this.#freeBytes = totalBytes;
  }

  /** False, and nothing is taken, when the organization would then hold more than is free. */
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
    if (held < 0) throw new RangeError('more is given back than was taken');
    this.#freeBytes += bytes;
    if (held === 0) this.#held.delete(organizationId);
    else this.#held.set(organizationId, held);
  }
}
