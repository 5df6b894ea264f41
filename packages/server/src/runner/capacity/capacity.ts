/** What stands before every VM: a promise of memory and vCPUs, room on the disk, and a turn to start. */
import { AppError } from '@coppice/contract';
import type { CapacityStatus, CreateVm } from '../../lib/runner-protocol.ts';
import type { Admission, Demand } from './admission.ts';
import type { DiskGuard } from './disk-guard.ts';
import type { Turns } from './turns.ts';

/** What a fresh sandbox writes: its overlay's copy and the first blocks over it. */
const SANDBOX_DISK_MIB = 16;

/** From the promise to the create; one that comes later is asked again. */
const HOLD_MS = 30_000;

export interface Reservation {
  /** The id that a place was held for. */
  heldAs?: string;
  giveWay?: () => Promise<boolean>;
}

export interface CapacityParts {
  admission: Admission;
  turns: Turns;
  disk: DiskGuard;
  /** vCPUs that one VM may have. */
  maxVcpus: number;
  availableMiB: () => number;
}

export class Capacity {
  readonly #parts: CapacityParts;

  constructor(parts: CapacityParts) {
    this.#parts = parts;
  }

  get maxVcpus(): number {
    return Math.min(this.#parts.maxVcpus, this.#parts.admission.largest.vcpus);
  }

  get maxMemMiB(): number {
    return this.#parts.admission.largest.memMiB;
  }

  /**
   * Holds a place for a sandbox that is about to be created: many who ask at once are answered by what is left for each,
   * before anything is done for them. Throws `invalid_request` for what this machine can never give, `capacity` for
   * what it cannot now. What the units `givable` have counts as free.
   */
  admit(id: string, request: CreateVm, givable: readonly string[]): void {
    this.#assertPossible(request);
    const { admission, disk, turns } = this.#parts;
    disk.assertRoom(SANDBOX_DISK_MIB);
    if (turns.isFull)
      throw new AppError('capacity', 'too many sandboxes wait to be started; try again later');
    admission.release(id);
    admission.book(id, { vcpus: request.vcpus, memMiB: request.mem_mib }, givable);
    setTimeout(() => admission.release(id), HOLD_MS).unref();
  }

  #assertPossible({ vcpus, mem_mib }: CreateVm): void {
    const { maxVcpus, maxMemMiB } = this;
    if (vcpus > maxVcpus)
      throw new AppError('invalid_request', `vcpus: must be at most ${maxVcpus} on this machine`);
    if (mem_mib > maxMemMiB)
      throw new AppError('invalid_request', `mem_mib: must be at most ${maxMemMiB} (MiB) on this machine`);
  }

  /** Books a VM, or takes over the place held for it. `giveWay` ends a VM that nobody has asked for, if there is one. */
  async reserve(unit: string, demand: Demand, how: Reservation = {}): Promise<void> {
    const { admission, disk } = this.#parts;
    const { heldAs, giveWay = async () => false } = how;
    disk.assertRoom(SANDBOX_DISK_MIB);
    if (heldAs !== undefined && admission.handOn(heldAs, unit, demand)) {
      while (admission.isOverbooked && (await giveWay()));
      return;
    }
    while (admission.findShortage(demand) !== undefined && (await giveWay()));
    admission.book(unit, demand);
  }

  adopt(unit: string, demand: Demand): void {
    this.#parts.admission.adopt(unit, demand);
  }

  release(unit: string): void {
    this.#parts.admission.release(unit);
  }

  hasRoomToSpare(demand: Demand): boolean {
    const { admission, disk } = this.#parts;
    return disk.freeMiB - SANDBOX_DISK_MIB >= disk.reserveMiB && admission.hasRoomToSpare(demand);
  }

  /** Starts a VM when it is its turn and `diskMiB` more fit; `signal` ends the wait. */
  inTurn<T>(needs: { diskMiB: number; signal?: AbortSignal }, start: () => Promise<T>): Promise<T> {
    return this.#parts.turns.run(needs.signal, () => {
      this.#parts.admission.assertAvailable();
      this.#parts.disk.assertRoom(needs.diskMiB);
      return start();
    });
  }

  get status(): CapacityStatus {
    const { admission, turns, disk, availableMiB } = this.#parts;
    return {
      mem_mib: admission.memory,
      vcpus: admission.vcpus,
      mem_available_mib: Math.floor(availableMiB()),
      starts: { running: turns.running, waiting: turns.waiting },
      disk: { free_mib: disk.freeMiB, reserve_mib: disk.reserveMiB },
    };
  }
}
