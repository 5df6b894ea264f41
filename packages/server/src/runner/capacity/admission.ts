/**
 * Accounts for the memory and vCPUs reserved for VMs on this machine. A VM is reserved before any part of it is
 * created, and its reservation is released when its process is gone. Reservations may exceed the hardware by configured
 * factors, as most sandboxes are idle. The memory that is really available is checked as well, because a restored VM's
 * memory is a private copy-on-write view that grows only later.
 */
import { AppError } from '@coppice/contract';
import type { Accelerator } from '../../lib/protocol/runner-protocol.ts';

export interface Demand {
  vcpus: number;
  memMiB: number;
  /** Set for a VM that is bound to one. */
  accelerator?: Accelerator;
}

export interface AdmissionOptions {
  hostMemMiB: number;
  cores: number;
  /** Overcommit factors of the host's memory and cores. */
  memOvercommit: number;
  cpuOvercommit: number;
  /** Memory of a VM's process besides the guest's. The default accelerator is that of new VMs. */
  overheadMiB: (accelerator?: Accelerator) => number;
  /** Memory that is available on the host now. */
  availableMiB: () => number;
}

export interface Promised {
  promised: number;
  limit: number;
}

const MIN_RESERVE_MIB = 512;
const MAX_RESERVE_MIB = 4096;
/** Warm VMs are kept only while this fraction of each limit is unreserved, for sandboxes. */
const SPARE_PART = 0.25;

/** Memory kept for the service, its PostgreSQL and the host. */
export function memoryReserveMiB(hostMemMiB: number): number {
  const reserve = Math.min(MAX_RESERVE_MIB, Math.max(MIN_RESERVE_MIB, hostMemMiB / 20));
  return Math.floor(Math.min(reserve, hostMemMiB / 2));
}

export class Admission {
  readonly #options: AdmissionOptions;
  readonly #reserveMiB: number;
  readonly #limits: Demand;
  readonly #booked = new Map<string, Demand>();

  constructor(options: AdmissionOptions) {
    this.#options = options;
    this.#reserveMiB = memoryReserveMiB(options.hostMemMiB);
    this.#limits = {
      vcpus: Math.max(1, Math.floor(options.cores * options.cpuOvercommit)),
      memMiB: Math.max(1, Math.floor(options.hostMemMiB * options.memOvercommit - this.#reserveMiB)),
    };
  }

  /** The largest VM that an empty machine could admit. */
  get largest(): Demand {
    const { hostMemMiB, overheadMiB } = this.#options;
    const memMiB = Math.min(hostMemMiB, this.#limits.memMiB - overheadMiB());
    return { vcpus: this.#limits.vcpus, memMiB: Math.max(1, memMiB) };
  }

  get memory(): Promised {
    return { promised: this.#promised().memMiB, limit: this.#limits.memMiB };
  }

  get vcpus(): Promised {
    return { promised: this.#promised().vcpus, limit: this.#limits.vcpus };
  }

  /**
   * Returns a `capacity` error if the demand cannot be reserved now, or undefined if it can. The VMs `givable` would be
   * ended to make room, so their reservations count as free.
   */
  findShortage(demand: Demand, givable: readonly string[] = []): AppError | undefined {
    const promised = this.#promised(new Set(givable));
    const neededMiB = this.#neededMiB(demand);
    const freeMiB = this.#limits.memMiB - promised.memMiB;
    if (neededMiB > freeMiB) {
      const free = `${Math.max(0, freeMiB)} of ${this.#limits.memMiB} are unreserved`;
      return shortage(`memory: ${neededMiB} MiB needed, ${free}`, 'raise COPPICE_MEM_OVERCOMMIT');
    }
    const freeVcpus = this.#limits.vcpus - promised.vcpus;
    if (demand.vcpus > freeVcpus) {
      const free = `${Math.max(0, freeVcpus)} of ${this.#limits.vcpus} are unreserved`;
      return shortage(`vcpus: ${demand.vcpus} needed, ${free}`, 'raise COPPICE_CPU_OVERCOMMIT');
    }
    return this.#findRealShortage();
  }

  /** Throws `capacity` when the host's memory is nearly used up. Called again right before a VM is started. */
  assertAvailable(): void {
    const found = this.#findRealShortage();
    if (found !== undefined) throw found;
  }

  #findRealShortage(): AppError | undefined {
    const availableMiB = Math.floor(this.#options.availableMiB());
    if (availableMiB >= this.#reserveMiB) return undefined;
    return shortage(
      `memory: this machine has ${availableMiB} MiB available, ${this.#reserveMiB} must stay free`,
      'free memory on it',
    );
  }

  /** Reserves the demand of a VM. Throws `capacity`. */
  book(unit: string, demand: Demand, givable: readonly string[] = []): void {
    const found = this.findShortage(demand, givable);
    if (found !== undefined) throw found;
    this.#booked.set(unit, demand);
  }

  /** Transfers a reservation to a VM, which may need another accelerator. Returns false when there is none. */
  handOn(from: string, to: string, demand: Demand): boolean {
    if (!this.#booked.delete(from)) return false;
    this.#booked.set(to, demand);
    return true;
  }

  /** Whether reservations exceed a limit, so that VMs that can give way must be ended. */
  get isOverbooked(): boolean {
    const { memMiB, vcpus } = this.#promised();
    return memMiB > this.#limits.memMiB || vcpus > this.#limits.vcpus;
  }

  /** Reserves a running VM without a check: it keeps its resources even if the limits have changed. */
  adopt(unit: string, demand: Demand): void {
    this.#booked.set(unit, demand);
  }

  release(unit: string): void {
    this.#booked.delete(unit);
  }

  /** Whether a VM may be started that no caller has requested. */
  hasRoomToSpare(demand: Demand): boolean {
    const { memMiB, vcpus } = this.#promised();
    const part = 1 - SPARE_PART;
    return (
      memMiB + this.#neededMiB(demand) <= this.#limits.memMiB * part &&
      vcpus + demand.vcpus <= this.#limits.vcpus * part &&
      this.#options.availableMiB() >= 2 * this.#reserveMiB
    );
  }

  #promised(without?: ReadonlySet<string>): Demand {
    const sum = { vcpus: 0, memMiB: 0 };
    for (const [unit, demand] of this.#booked) {
      if (without?.has(unit) === true) continue;
      sum.vcpus += demand.vcpus;
      sum.memMiB += this.#neededMiB(demand);
    }
    return sum;
  }

  #neededMiB({ memMiB, accelerator }: Demand): number {
    return memMiB + this.#options.overheadMiB(accelerator);
  }
}

function shortage(fact: string, remedy: string): AppError {
  return new AppError('capacity', `${fact}; try again later, or ${remedy}`);
}
