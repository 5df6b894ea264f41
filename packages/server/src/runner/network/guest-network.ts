/**
 * The network of a runner's guests: one TAP each, never bridged, made in advance; kernel-forwarded and masqueraded,
 * cut off from each other, the host and private ranges by one nftables table (ruleset.ts); names resolved, and all of
 * guests with rules judged, by the egress process (egress-process.ts). What slot n is called and which addresses it has follows from n alone, so that TAPs of an
 * earlier runner process are recognized and, with their VMs, adopted.
 */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { EgressCounters } from '../../lib/protocol/egress-protocol.ts';
import { GUEST_MAC } from '../vm/shape.ts';
import { buildSlotAddresses } from './addresses/address-plan.ts';
import type { EgressGuest } from './egress/egress-process.ts';
import { openInstance, type Instance } from './instance.ts';
import type { EgressOptions } from './egress/open-egress.ts';
import type { ToolPaths } from './kernel/kernel-tools.ts';
import { buildTapName } from './addresses/slot-names.ts';
import { SlotPool } from './slots/slot-pool.ts';
import { openTapDevice } from './kernel/tap-device.ts';
import { assertNoRules, isBare, TAP_SLOTS, type VmNetwork, type VmSlot } from './vm-network.ts';

export interface GuestNetworkOptions extends EgressOptions {
  /** 4 hex characters, unique among the instances on this machine. */
  slug: string;
  /** Private IPv4 range that nothing else on the host uses, /8 to /28. */
  guestCidr: string;
  tools: ToolPaths;
  /** TAPs kept ready. */
  poolSize: number;
}

export interface NetworkSlot {
  index: number;
  tapName: string;
  /** A new descriptor on the TAP for `-netdev tap,fd=N`; the caller closes it. One holder at a time. */
  openTap: () => number;
  /** The guest's, with prefix. */
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
   * Brings up resolver, table and forwarding and starts filling the pool. TAPs of an earlier process keep working
   * until {@link sweepUnadopted}. Throws `invalid_request` naming the option that cannot be used.
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
   * The slot that the VM had under the former runner process, with its way out as it was; one from the time when the
   * machine had no network goes on without. Throws `internal` when its TAP is gone or taken, or a slot that must be
   * closed cannot be.
   */
  async adopt(vmId: string, index: number, guest: EgressGuest): Promise<VmSlot> {
    if (isBare(index)) return { index, openTap: undefined };
    if (!this.#pool.adopt(vmId, index)) {
      throw new AppError('internal', `adopting network slot ${index}: its TAP is gone or has another VM`);
    }
    await this.#instance.egress.adopt(vmId, this.#instance.placeOf(index), guest);
    return this.#describe(index);
  }

  assertEgress(): void {
    // Every policy can be kept here.
  }

  async setEgress(vmId: string, guest: EgressGuest): Promise<void> {
    const index = this.#pool.findByVm(vmId);
    if (index === undefined) return assertNoRules(guest.egress, 'the sandbox was started without a network');
    await this.#instance.egress.set(vmId, this.#instance.placeOf(index), guest);
  }

  async endEgress(vmId: string): Promise<void> {
    await this.#instance.egress.end(vmId);
  }

  async readEgress(vmId: string): Promise<EgressCounters> {
    return await this.#instance.egress.readCounters(vmId);
  }

  /** Ends the adoption phase: TAPs of the former process that nobody adopted are removed in the background. */
  sweepUnadopted(): void {
    const slots = this.#pool.sweepUnadopted();
    if (slots.length > 0) this.#log.info({ slots }, 'removing TAPs that no VM uses');
  }

  /**
   * Takes the VM's network away, whether a VMM still holds it or not, with all its connections. Settles when that is
   * done; after a rejection it is tried again in the background. Does nothing for a VM that has none.
   */
  async release(vmId: string): Promise<void> {
    await this.#instance.egress.end(vmId);
    await this.#pool.release(vmId);
  }

  /** Stops this process's part; VMs keep their network, but for DNS, until the next `open`. */
  async close(): Promise<void> {
    await this.#pool.close();
    await this.#instance.close();
  }

  /** Removes everything of this instance from the host, running VMs' networks too. Forwarding stays enabled. */
  async destroy(): Promise<void> {
    await this.close();
    await this.#instance.removeAll(this.#pool.listPresent());
  }

  /** Looks whether the rules are in place, and puts them back if not. */
  checkTable(): void {
    this.#pool.doubt();
  }

  #describe(index: number): NetworkSlot {
    const { names, plan, mtu } = this.#instance;
    const { guest, gateway, prefix } = buildSlotAddresses(plan, index);
    const tapName = buildTapName(names, index);
    return {
      index,
      tapName,
      openTap: () => openTapDevice(tapName),
      address: `${guest}/${prefix}`,
      gateway,
      resolver: plan.resolver,
      mac: GUEST_MAC,
      mtu,
    };
  }
}
