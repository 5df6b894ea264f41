/** What stands before every VM: a promise of memory and vCPUs, room on the disk, and a turn to start. */
import { AppError } from '@coppice/contract';
import type { CapacityStatus, VmShape } from '../../lib/protocol/runner-protocol.ts';
import type { Admission, Demand } from './admission.ts';
import type { DiskGuard } from './disk-guard.ts';
import type { Turns } from './turns.ts';

/** What a fresh sandbox writes: its overlay's copy and the first blocks over it. */
const SANDBOX_DISK_MIB = 16;

export interface Reservation {
  /** The id of a create that a place is held for: it is handed over. */
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
  /** Ids that a place is held for, each by the last who asked. */
  readonly #holds = new Map<string, symbol>();

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
   * Holds a place for a sandbox that is about to be created, until its VM has taken the place over or the hold is
   * disposed. Of many creates that come at once, each is judged by the room that those before it have left. Throws
   * `invalid_request` for what this machine can never give, `capacity` for what it cannot now. What the units `givable`
   * have counts as free.
   */
  admit(id: string, request: VmShape, givable: readonly string[]): Disposable {
    this.assertPossible(request);
    const { admission, disk, turns } = this.#parts;
    disk.assertRoom(SANDBOX_DISK_MIB);
    if (turns.isFull)
      throw new AppError('capacity', 'too many sandboxes wait to be started; try again later');
    this.dropHold(id);
    admission.book(id, { vcpus: request.vcpus, memMiB: request.mem_mib }, givable);
    const hold = Symbol(id);
    this.#holds.set(id, hold);
    return {
      [Symbol.dispose]: () => {
        if (this.#holds.get(id) === hold) this.dropHold(id);
      },
    };
  }

  /** Gives back the place that is held for a create, if there is one. */
  dropHold(id: string): void {
    if (this.#holds.delete(id)) this.#parts.admission.release(id);
  }

  isPossible({ vcpus, mem_mib }: VmShape): boolean {
    return vcpus <= this.maxVcpus && mem_mib <= this.maxMemMiB;
  }

  /** Throws `invalid_request` for what this machine can never give; `where` stands before the name of the field. */
  assertPossible({ vcpus, mem_mib }: VmShape, where = ''): void {
    const { maxVcpus, maxMemMiB } = this;
    const refuse = (field: string, most: string): never => {
      throw new AppError('invalid_request', `${where}${field}: must be at most ${most} on this machine`);
    };
    if (vcpus > maxVcpus) refuse('vcpus', String(maxVcpus));
    if (mem_mib > maxMemMiB) refuse('mem_mib', `${maxMemMiB} (MiB)`);
  }

  /** Books a VM, or takes over the place held for it. `giveWay` ends a VM that nobody has asked for, if there is one. */
  async reserve(unit: string, demand: Demand, how: Reservation = {}): Promise<void> {
    const { admission, disk } = this.#parts;
    const { heldAs, giveWay = async () => false } = how;
    disk.assertRoom(SANDBOX_DISK_MIB);
    if (heldAs !== undefined && this.#holds.delete(heldAs) && admission.handOn(heldAs, unit, demand)) {
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
