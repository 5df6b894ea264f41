/**
 * The interface between VMs and their network. A VM's uid is derived from the index of its slot, with or without a
 * network. A VM whose slot has no TAP gets no network device. The two kinds of slots have separate ranges of indexes:
 * the slot in a VM's record shows its kind, and VMs of both kinds can run in parallel after the machine gains a
 * network.
 */
import { AppError } from '@coppice/contract';
import { hasNoRules, type EgressCounters, type VmEgress } from '../../lib/protocol/egress-protocol.ts';
import type { EgressGuest } from './egress/egress-process.ts';
import type { NetworkSlot } from './guest-network.ts';
import type { TapTraffic } from './kernel/tap-traffic.ts';

/** Number of slots with a TAP: slots 0 to 16 383. */
export const TAP_SLOTS = 16_384;
/** Number of slots without a TAP, which follow those with one. */
export const BARE_SLOTS = 2046;

/** The slot of a VM without a network. */
export interface BareSlot {
  index: number;
  tap: undefined;
}

export type VmSlot = NetworkSlot | BareSlot;

export interface VmNetwork {
  /** Why guests have no network, for an operator; undefined when they have one. */
  readonly absence: string | undefined;
  /**
   * Returns the VM's slot, the same one if it has one already, and not `avoid` unless it is the only one left. Throws
   * `capacity` when no slot is free.
   */
  acquire(vmId: string, avoid?: number): Promise<VmSlot>;
  /**
   * Adopts the slot that the VM had under the former runner process, with the egress policy in its record. Throws
   * `internal` when the slot cannot be kept.
   */
  adopt(vmId: string, index: number, guest: EgressGuest): Promise<VmSlot>;
  /** Throws `invalid_request` when this network cannot enforce the policy; called before anything is made. */
  assertEgress(egress: VmEgress): void;
  /**
   * Sets what the VM may send and the secrets that are added to it. When it settles, the policy is in force, also for
   * open connections. Until then the slot is open, so the caller sets rules before code of the sandbox runs.
   */
  setEgress(vmId: string, guest: EgressGuest): Promise<void>;
  /** Ends the VM's egress. When it settles, all notes of the VM are sent. Does nothing for a VM without a slot. */
  endEgress(vmId: string): Promise<void>;
  /** Reads the VM's counters. Throws `not_found` for a VM without a network. */
  readEgress(vmId: string): Promise<EgressCounters>;
  /** Reads the traffic at the TAPs of VMs, by VM. A VM without a TAP has none. */
  readTraffic(vmIds: readonly string[]): ReadonlyMap<string, TapTraffic>;
  /** Ends the adoption phase: removes the slots of the former process that were not adopted. */
  sweepUnadopted(): void;
  /** Releases the VM's slot. Does nothing for a VM without one. */
  release(vmId: string): Promise<void>;
  /** Ends the part of this process. VMs keep their network. */
  close(): Promise<void>;
}

export function isBare(index: number): boolean {
  return index >= TAP_SLOTS;
}

/** Returns the addresses for the guest; undefined for a guest without a network device. */
export function addressesOf(slot: VmSlot): NetworkSlot | undefined {
  return slot.tap === undefined ? undefined : slot;
}

/** Throws `invalid_request` for rules or secrets: without a network neither can be enforced or used. */
export function assertNoRules(egress: VmEgress, absence: string): void {
  if (hasNoRules(egress)) return;
  const field = egress.grants.length === 0 ? 'network' : 'credentials';
  throw new AppError(
    'invalid_request',
    `${field}: sandboxes have no network here (${absence}); leave it out`,
  );
}
