/**
 * The network of a machine that cannot filter the packets of guests: they get no network device. Slots are only
 * numbers, free again at once, as nothing in the kernel is bound to them.
 */
import { AppError } from '@coppice/contract';
import type { EgressCounters, VmEgress } from '../../lib/protocol/egress-protocol.ts';
import type { EgressGuest } from './egress/egress-process.ts';
import type { TapTraffic } from './kernel/tap-traffic.ts';
import { assertNoRules, BARE_SLOTS, isBare, TAP_SLOTS, type BareSlot, type VmNetwork } from './vm-network.ts';

export class NoNetwork implements VmNetwork {
  readonly absence: string;
  readonly #capacity: number;
  readonly #byVm = new Map<string, number>();

  /** `absence` is the reason, for log, status and callers. */
  constructor(absence: string, capacity = BARE_SLOTS) {
    this.absence = absence;
    this.#capacity = capacity;
  }

  async acquire(vmId: string): Promise<BareSlot> {
    const index = this.#byVm.get(vmId) ?? this.#findFree();
    this.#byVm.set(vmId, index);
    return { index, tap: undefined };
  }

  /**
   * Adopts a VM's slot. Throws `internal` for a VM that was started with a TAP: nothing here keeps the rules for its
   * packets in place.
   */
  async adopt(vmId: string, index: number, _guest?: EgressGuest): Promise<BareSlot> {
    if (!isBare(index))
      throw new AppError('internal', `the VM has a network that nothing here can filter: ${this.absence}`);
    const isTaken = [...this.#byVm].some(([other, taken]) => taken === index && other !== vmId);
    if (isTaken) throw new AppError('internal', `adopting slot ${index}: another VM has it`);
    this.#byVm.set(vmId, index);
    return { index, tap: undefined };
  }

  assertEgress(egress: VmEgress): void {
    assertNoRules(egress, this.absence);
  }

  async setEgress(_vmId: string, { egress }: EgressGuest): Promise<void> {
    this.assertEgress(egress);
  }

  async endEgress(): Promise<void> {
    // The VM cannot have sent anything.
  }

  async readEgress(): Promise<EgressCounters> {
    throw new AppError('not_found', `the sandbox has no network: ${this.absence}`);
  }

  readTraffic(): ReadonlyMap<string, TapTraffic> {
    return new Map();
  }

  sweepUnadopted(): void {
    // The leftovers of an earlier network cannot be removed without the means to make one.
  }

  async release(vmId: string): Promise<void> {
    this.#byVm.delete(vmId);
  }

  async close(): Promise<void> {
    // Nothing is open.
  }

  #findFree(): number {
    const taken = new Set(this.#byVm.values());
    for (let index = TAP_SLOTS; index < TAP_SLOTS + this.#capacity; index += 1) {
      if (!taken.has(index)) return index;
    }
    throw new AppError('capacity', 'this machine has no free slot for another sandbox');
  }
}
