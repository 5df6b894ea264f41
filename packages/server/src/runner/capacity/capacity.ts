/** Guards every VM start: it needs a reservation of memory and vCPUs, disk space, and a start slot. */
import { AppError } from '@coppice/contract';
import type { CapacityStatus, VmShape } from '../../lib/protocol/runner-protocol.ts';
import type { Admission, Demand } from './admission.ts';
import type { DiskGuard } from './disk-guard.ts';
import type { Turns } from './turns.ts';

/** Written by a new sandbox: the copy of its overlay and the first blocks on top. */
const SANDBOX_DISK_MIB = 16;

export interface Reservation {
  /** The id of a create with a held reservation, which is transferred to the VM. */
  heldAs?: string;
  giveWay?: () => Promise<boolean>;
}

export interface CapacityParts {
  admission: Admission;
  turns: Turns;
  disk: DiskGuard;
  /** The most vCPUs of one VM. */
  maxVcpus: number;
  availableMiB: () => number;
}

export class Capacity {
  readonly #parts: CapacityParts;
  /** The ids with a held reservation, each with its latest hold. */
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
   * Holds a reservation for a sandbox that is about to be created, until its VM takes it over or the hold is disposed.
   * Each of many concurrent creates is judged by the room that the earlier ones have left. Throws `invalid_request` for
   * a demand that this machine can never meet, and `capacity` for one that it cannot meet now. The reservations of the
   * VMs `givable` count as free.
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

  /** Releases the reservation that is held for a create, if there is one. */
  dropHold(id: string): void {
    if (this.#holds.delete(id)) this.#parts.admission.release(id);
  }

  isPossible({ vcpus, mem_mib }: VmShape): boolean {
    return vcpus <= this.maxVcpus && mem_mib <= this.maxMemMiB;
  }

  /** Throws `invalid_request` for a demand that this machine can never meet. `where` prefixes the name of the field. */
  assertPossible({ vcpus, mem_mib }: VmShape, where = ''): void {
    const { maxVcpus, maxMemMiB } = this;
    const refuse = (field: string, most: string): never => {
      throw new AppError('invalid_request', `${where}${field}: must be at most ${most} on this machine`);
    };
    if (vcpus > maxVcpus) refuse('vcpus', String(maxVcpus));
    if (mem_mib > maxMemMiB) refuse('mem_mib', `${maxMemMiB} (MiB)`);
  }

  /**
   * Reserves a VM, or takes over the reservation held for it. `giveWay` ends a VM that no caller has requested; it
   * returns false if there is none. Throws `capacity`.
   */
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

  /**
   * Calls `start` when a start slot is free. Throws `capacity` if memory is short or `diskMiB` do not fit. `signal`
   * ends the wait with its reason.
   */
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
