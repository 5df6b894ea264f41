/**
 * The network of a runner's guests. Each guest has one TAP, made in advance and never bridged. The kernel forwards and
 * masquerades its packets; one nftables table (ruleset.ts) isolates it from other guests, the host and private ranges.
 * The egress process (egress-process.ts) resolves names, and judges all traffic of guests with rules. The name and the
 * addresses of slot n are derived from n alone, so that the next runner process recognizes its TAPs and adopts them
 * with their VMs.
 */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { EgressCounters } from '../../lib/protocol/egress-protocol.ts';
import { GUEST_MAC } from '../vm/shape.ts';
import { buildSlotAddresses } from './addresses/address-plan.ts';
import type { EgressGuest } from './egress/egress-process.ts';
import type { SlotPlace } from './egress/guest-egress.ts';
import { openInstance, type Instance } from './instance.ts';
import type { EgressOptions } from './egress/open-egress.ts';
import type { HostPrograms } from './kernel/kernel-tools.ts';
import { readAllTraffic, type TapTraffic } from './kernel/tap-traffic.ts';
import { buildConnectionMark, buildTapName } from './addresses/slot-names.ts';
import { SlotPool } from './slots/slot-pool.ts';
import { assertNoRules, isBare, TAP_SLOTS, type VmNetwork, type VmSlot } from './vm-network.ts';

export interface GuestNetworkOptions extends EgressOptions {
  /** 4 hex characters, unique among the instances on this machine. */
  slug: string;
  /** Private IPv4 range that nothing else on the host uses, /8 to /28. */
  guestCidr: string;
  tools: HostPrograms;
  /** Number of TAPs kept ready. */
  poolSize: number;
}

export interface NetworkSlot {
  index: number;
  /** Name of the TAP, which has one holder at a time. */
  tap: string;
  /** Address of the guest, with prefix. */
  address: string;
  gateway: string;
  resolver: string;
  mac: string;
  mtu: number;
}

export class GuestNetwork implements VmNetwork {
  readonly absence = undefined;
  readonly #instance: Instance;
  readonly #pool: SlotPool;
  readonly #log: Logger;

  private constructor(instance: Instance, options: GuestNetworkOptions) {
    const { plan, found, devices, firewall } = instance;
    this.#instance = instance;
    this.#log = options.log;
    this.#pool = new SlotPool({
      capacity: Math.min(plan.capacity, TAP_SLOTS),
      size: options.poolSize,
      found,
      create: (indexes) => devices.create(indexes),
      remove: (indexes) => devices.remove(indexes),
      restore: () => firewall.restore(),
      log: options.log,
    });
  }

  /**
   * Starts resolver, table and forwarding, and starts to fill the pool. TAPs of an earlier process keep working until
   * {@link sweepUnadopted}. Throws `invalid_request` with the name of the unusable option.
   */
  static async open(options: GuestNetworkOptions): Promise<GuestNetwork> {
    let network: GuestNetwork | undefined;
    const instance = await openInstance(options, () => network?.checkTable());
    network = new GuestNetwork(instance, options);
    return network;
  }

  async acquire(vmId: string, avoid?: number): Promise<NetworkSlot> {
    return this.#describe(await this.#pool.acquire(vmId, avoid));
  }

  /**
   * Adopts the slot that the VM had under the former runner process, with its egress policy. A VM from a time when the
   * machine had no network stays without one. Throws `internal` when its TAP is gone or taken, or when a slot that must
   * be closed cannot be closed.
   */
  async adopt(vmId: string, index: number, guest: EgressGuest): Promise<VmSlot> {
    if (isBare(index)) return { index, tap: undefined };
    if (!this.#pool.adopt(vmId, index)) {
      throw new AppError('internal', `adopting network slot ${index}: its TAP is gone or has another VM`);
    }
    await this.#instance.egress.adopt(vmId, this.#placeOf(index), guest);
    return this.#describe(index);
  }

  assertEgress(): void {
    // This network supports every policy.
  }

  async setEgress(vmId: string, guest: EgressGuest): Promise<void> {
    const index = this.#pool.findByVm(vmId);
    if (index === undefined) return assertNoRules(guest.egress, 'the sandbox was started without a network');
    await this.#instance.egress.set(vmId, this.#placeOf(index), guest);
  }

  async endEgress(vmId: string): Promise<void> {
    await this.#instance.egress.end(vmId);
  }

  async readEgress(vmId: string): Promise<EgressCounters> {
    return await this.#instance.egress.readCounters(vmId);
  }

  /** Reads the counts of all devices once, however many VMs there are. */
  readTraffic(vmIds: readonly string[]): ReadonlyMap<string, TapTraffic> {
    const traffic = readAllTraffic();
    const { names } = this.#instance;
    const found = new Map<string, TapTraffic>();
    for (const vmId of vmIds) {
      const index = this.#pool.findByVm(vmId);
      const counts = index === undefined ? undefined : traffic.get(buildTapName(names, index));
      if (counts !== undefined) found.set(vmId, counts);
    }
    return found;
  }

  /** Ends the adoption phase: removes, in the background, the TAPs of the former process that were not adopted. */
  sweepUnadopted(): void {
    const slots = this.#pool.sweepUnadopted();
    if (slots.length > 0) this.#log.info({ slots }, 'removing TAPs that no VM uses');
  }

  /**
   * Removes the VM's network with all its connections, even if a VMM still holds it. Settles when it is removed; after
   * a rejection the removal is retried in the background. Does nothing for a VM without a slot.
   */
  async release(vmId: string): Promise<void> {
    await this.#instance.egress.end(vmId);
    await this.#pool.release(vmId);
  }

  /** Stops the part of this process; VMs keep their network, except DNS, until the next `open`. */
  async close(): Promise<void> {
    await this.#pool.close();
    await this.#instance.close();
  }

  /** Removes all of this instance from the host, with the networks of running VMs. Forwarding stays enabled. */
  async destroy(): Promise<void> {
    await this.close();
    await this.#instance.removeAll(this.#pool.listPresent());
  }

  /** Checks that the rules are in place, and restores them if not. */
  checkTable(): void {
    this.#pool.doubt();
  }

  #placeOf(index: number): SlotPlace {
    const { names, plan } = this.#instance;
    const { guest: address, zone } = buildSlotAddresses(plan, index);
    return { index, tap: buildTapName(names, index), address, mark: buildConnectionMark(names, zone) };
  }

  #describe(index: number): NetworkSlot {
    const { names, plan, mtu } = this.#instance;
    const { guest, gateway, prefix } = buildSlotAddresses(plan, index);
    return {
      index,
      tap: buildTapName(names, index),
      address: `${guest}/${prefix}`,
      gateway,
      resolver: plan.resolver,
      mac: GUEST_MAC,
      mtu,
    };
  }
}
