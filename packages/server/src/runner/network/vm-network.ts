/**
 * The seam between VMs and what connects them. A slot's index is what a VM's uid follows from, with a network or
 * without; a VM whose slot has no TAP gets no network device at all. The two kinds have numbers of their own, so that
 * a record's slot says which it is, and VMs of both can run beside each other after the machine has gained a network.
 */
import { AppError } from '@coppice/contract';
import { hasNoRules, type EgressCounters, type VmEgress } from '../../lib/protocol/egress-protocol.ts';
import type { EgressGuest } from './egress/egress-process.ts';
import type { NetworkSlot } from './guest-network.ts';

/** Slots 0 to 16 383 have a TAP … */
export const TAP_SLOTS = 16_384;
/** … and those after them have none. */
export const BARE_SLOTS = 2048;

/** A place among the VMs of a machine that has no network for them. */
export interface BareSlot {
  index: number;
  openTap: undefined;
}

export type VmSlot = NetworkSlot | BareSlot;

export interface VmNetwork {
  /** Why guests have no network, in words for an operator; undefined where they have one. */
  readonly absence: string | undefined;
  /**
   * The VM's slot, the same one if it has one already; not `avoid`, unless there is no other. Throws `capacity` when there
   * are no more.
   */
  acquire(vmId: string, avoid?: number): Promise<VmSlot>;
  /**
   * The slot that the VM had under the former runner process, with the way out that its record tells. Throws `internal`
   * when it cannot be kept.
   */
  adopt(vmId: string, index: number, guest: EgressGuest): Promise<VmSlot>;
  /** Throws `invalid_request` where sandboxes can have no such way out: before anything is made. */
  assertEgress(egress: VmEgress): void;
  /**
   * What the VM may send, and which secrets are added to it, from when it settles; also for connections that are open. A
   * slot is open until then: rules are set before code of the sandbox runs.
   */
  setEgress(vmId: string, guest: EgressGuest): Promise<void>;
  /** All that the VM has sent is noted when it settles. Does nothing for one that has no slot. */
  endEgress(vmId: string): Promise<void>;
  /** Throws `not_found` for a VM without a network. */
  readEgress(vmId: string): Promise<EgressCounters>;
  /** Ends the adoption phase: what the former process had and nobody adopted is removed. */
  sweepUnadopted(): void;
  /** Does nothing for a VM that has no slot. */
  release(vmId: string): Promise<void>;
  /** Ends this process's part. VMs keep what they have. */
  close(): Promise<void>;
}

export function isBare(index: number): boolean {
  return index >= TAP_SLOTS;
}

/** What the guest is to be told; undefined for one without a network device. */
export function addressesOf(slot: VmSlot): NetworkSlot | undefined {
  return slot.openTap === undefined ? undefined : slot;
}

/** Where there is no network nobody keeps rules, and no secret reaches anybody. */
export function assertNoRules(egress: VmEgress, absence: string): void {
  if (hasNoRules(egress)) return;
  const field = egress.grants.length === 0 ? 'network' : 'credentials';
  throw new AppError(
    'invalid_request',
    `${field}: sandboxes have no network here (${absence}); leave it out`,
  );
}
