/**
 * The network of a runner's guests: one TAP each, never bridged, made in advance; kernel-forwarded and masqueraded,
 * cut off from each other, the host and private ranges by one nftables table (ruleset.ts); names resolved by a
 * forwarder of ours. What slot n is called and which addresses it has follows from n alone, so that TAPs of an
 * earlier runner process are recognized and, with their VMs, adopted.
 *
 * All changes of the kernel's state are made by one worker, in batches; callers wait for its result.
 */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { withDeadline } from '../../lib/deadline.ts';
import { GUEST_MAC } from '../vmm/qemu-arguments.ts';
import { buildSlotAddresses } from './address-plan.ts';
import { openInstance, type Instance } from './instance.ts';
import type { ToolPaths } from './kernel-tools.ts';
import { SlotLedger } from './slot-ledger.ts';
import { buildTapName } from './slot-names.ts';
import { TableWatch } from './table-watch.ts';
import { openTapDevice } from './tap-device.ts';

/** Packets under way to the former owner of an address are gone by then. */
const QUARANTINE_MS = 3000;
const ACQUIRE_TIMEOUT_MS = 15_000;
const RETRY_DELAY_MS = 1000;
const BATCH_LIMIT = 16;

export interface GuestNetworkOptions {
  /** 4 hex characters, unique among the instances on this machine. */
  slug: string;
  /** Private IPv4 range that nothing else on the host uses, /8 to /28. */
  guestCidr: string;
  tools: ToolPaths;
  /** TAPs kept ready. */
  poolSize: number;
  /** Private ranges that guests may reach all the same. */
  openPrivateRanges: readonly string[];
  /** Where guests' DNS questions go; the host's own resolvers if absent. */
  upstreamResolvers?: readonly string[];
  log: Logger;
}

export interface NetworkSlot {
  index: number;
  tapName: string;
  /** A new descriptor on the TAP for `-netdev tap,fd=N`; the caller closes it. One holder at a time. */
  openTap(): number;
  /** The guest's, with prefix. */
  address: string;
  gateway: string;
  resolver: string;
  mac: string;
  mtu: number;
}

export class GuestNetwork {
  readonly #instance: Instance;
  readonly #ledger: SlotLedger;
  readonly #poolSize: number;
  readonly #log: Logger;
  readonly #watch: TableWatch;
  readonly #waiting = new Map<string, PromiseWithResolvers<number>>();
  readonly #removals = new Map<number, PromiseWithResolvers<void>>();
  #work: Promise<void> | undefined;
  #retry: NodeJS.Timeout | undefined;
  #isTableInDoubt = false;
  #isClosed = false;

  private constructor(instance: Instance, options: GuestNetworkOptions) {
    const { capacity } = instance.plan;
    this.#instance = instance;
    this.#poolSize = options.poolSize;
    this.#log = options.log;
    this.#ledger = new SlotLedger({ capacity, quarantineMs: QUARANTINE_MS, found: instance.found });
    this.#watch = new TableWatch(instance.names.table, () => {
      this.#isTableInDoubt = true;
      this.#wake();
    });
  }

  /**
   * Brings up resolver, table and forwarding and starts filling the pool. TAPs of an earlier process keep working
   * until {@link sweepUnadopted}. Throws `invalid_request` naming the option that cannot be used.
   */
  static async open(options: GuestNetworkOptions): Promise<GuestNetwork> {
    const network = new GuestNetwork(await openInstance(options), options);
    network.#wake();
    return network;
  }

  /** The VM's slot, the same one if it has one already. Throws `capacity` when there are no more addresses. */
  async acquire(vmId: string): Promise<NetworkSlot> {
    this.#assertOpen();
    const index = this.#ledger.findByVm(vmId) ?? this.#ledger.lease(vmId) ?? (await this.#waitForSlot(vmId));
    this.#wake();
    return this.#describe(index);
  }

  /** The slot that the VM had under the former runner process. Throws `internal` when its TAP is gone or taken. */
  adopt(vmId: string, index: number): NetworkSlot {
    this.#assertOpen();
    if (!this.#ledger.adopt(vmId, index)) {
      throw new AppError('internal', `adopting network slot ${index}: its TAP is gone or another VM's`);
    }
    return this.#describe(index);
  }

  /** Ends the adoption phase: TAPs of the former process that nobody adopted are removed in the background. */
  sweepUnadopted(): void {
    const unadopted = this.#ledger.list('found');
    if (unadopted.length > 0) this.#log.info({ slots: unadopted }, 'removing TAPs that no VM uses');
    this.#ledger.discard(unadopted);
    this.#wake();
  }

  /**
   * Takes the VM's network away, whether a VMM still holds it or not, with all its connections. Settles when that is
   * done; after a rejection it is tried again in the background. Does nothing for a VM that has none.
   */
  async release(vmId: string): Promise<void> {
    this.#waiting
      .get(vmId)
      ?.reject(new AppError('invalid_state', 'the network slot was released while it was made'));
    this.#waiting.delete(vmId);
    const index = this.#ledger.release(vmId);
    if (index === undefined || this.#isClosed) return;
    const removal = Promise.withResolvers<void>();
    this.#removals.set(index, removal);
    this.#wake();
    await removal.promise;
  }

  /** Stops this process's part; VMs keep their network, but for DNS, until the next `open`. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearTimeout(this.#retry);
    const reason = new AppError('unavailable', 'the guest network is closing');
    this.#rejectWaiting(reason);
    await this.#work;
    for (const removal of this.#removals.values()) removal.reject(reason);
    this.#watch[Symbol.dispose]();
    await this.#instance.close();
  }

  /** Removes everything of this instance from the host, running VMs' networks too. Forwarding stays enabled. */
  async destroy(): Promise<void> {
    await this.close();
    await this.#instance.removeAll(this.#ledger.listPresent());
  }

  #describe(index: number): NetworkSlot {
    const { names, plan, mtu } = this.#instance;
    const { guest, gateway, prefix } = buildSlotAddresses(plan, index);
    const tapName = buildTapName(names, index);
    const address = `${guest}/${prefix}`;
    const openTap = () => openTapDevice(tapName);
    return { index, tapName, openTap, address, gateway, resolver: plan.resolver, mac: GUEST_MAC, mtu };
  }

  async #waitForSlot(vmId: string): Promise<number> {
    const waiting = this.#waiting.get(vmId) ?? Promise.withResolvers<number>();
    this.#waiting.set(vmId, waiting);
    this.#wake();
    return await withDeadline('making a network slot', ACQUIRE_TIMEOUT_MS, waiting.promise, () => {
      this.#waiting.delete(vmId);
    });
  }

  /** Starts the worker unless it runs; it looks for work again before it ends. */
  #wake(): void {
    if (this.#isClosed || this.#work !== undefined) return;
    clearTimeout(this.#retry);
    this.#work = this.#workUntilDone().then((nextAtMs) => {
      this.#work = undefined;
      this.#wakeAt(nextAtMs);
    });
  }

  #wakeAt(atMs: number | undefined): void {
    if (atMs === undefined || this.#isClosed) return;
    this.#retry = setTimeout(() => this.#wake(), Math.max(1, atMs - performance.now()));
    this.#retry.unref();
  }

  /** Answers when there will be more to do, if that is known. Never rejects. */
  async #workUntilDone(): Promise<number | undefined> {
    while (!this.#isClosed) {
      try {
        if (!(await this.#workOnce())) return this.#planNext();
      } catch (error) {
        this.#log.error({ err: error }, 'guest network: a change failed; trying again');
        this.#rejectWaiting(error);
        return performance.now() + RETRY_DELAY_MS;
      }
    }
    return undefined;
  }

  /** One step, the most urgent first; false when there is nothing to do. */
  async #workOnce(): Promise<boolean> {
    if (this.#isTableInDoubt) return await this.#restoreTable();
    if (this.#waiting.size > 0 && (await this.#prepare(this.#waiting.size))) return true;
    if (await this.#removeReleased()) return true;
    return await this.#prepare(this.#poolSize - this.#ledger.list('ready').length);
  }

  async #restoreTable(): Promise<boolean> {
    this.#isTableInDoubt = false;
    try {
      await this.#instance.firewall.restore();
    } catch (error) {
      this.#isTableInDoubt = true;
      throw error;
    }
    return true;
  }

  async #prepare(count: number): Promise<boolean> {
    const indexes = this.#ledger.reserve(Math.min(count, BATCH_LIMIT), performance.now());
    if (indexes.length === 0) return false;
    try {
      await this.#instance.devices.create(indexes);
    } catch (error) {
      this.#ledger.discard(indexes);
      throw error;
    }
    for (const index of indexes) this.#ledger.prepared(index);
    this.#serveWaiting();
    return true;
  }

  #serveWaiting(): void {
    for (const [vmId, waiting] of this.#waiting) {
      const index = this.#ledger.lease(vmId);
      if (index === undefined) return;
      this.#waiting.delete(vmId);
      waiting.resolve(index);
    }
  }

  async #removeReleased(): Promise<boolean> {
    const indexes = this.#ledger.list('removing').slice(0, BATCH_LIMIT);
    if (indexes.length === 0) return false;
    try {
      await this.#instance.devices.remove(indexes);
    } catch (error) {
      for (const index of indexes) this.#settleRemoval(index, error);
      throw error;
    }
    for (const index of indexes) {
      this.#ledger.removed(index, performance.now());
      this.#instance.forgetGuest(index);
      this.#settleRemoval(index, undefined);
    }
    return true;
  }

  #settleRemoval(index: number, error: unknown): void {
    const removal = this.#removals.get(index);
    this.#removals.delete(index);
    if (error === undefined) removal?.resolve();
    else removal?.reject(error);
  }

  /** Whoever waits when no slot is free and none will be soon gets told so. */
  #planNext(): number | undefined {
    const isShort = this.#waiting.size > 0 || this.#ledger.list('ready').length < this.#poolSize;
    const nextFreeAtMs = this.#ledger.nextFreeAtMs();
    if (nextFreeAtMs === undefined && this.#waiting.size > 0) {
      this.#rejectWaiting(new AppError('capacity', 'all addresses for sandboxes on this machine are in use'));
    }
    return isShort ? nextFreeAtMs : undefined;
  }

  #rejectWaiting(error: unknown): void {
    for (const waiting of this.#waiting.values()) waiting.reject(error);
    this.#waiting.clear();
  }

  #assertOpen(): void {
    if (this.#isClosed) throw new AppError('unavailable', 'the guest network is closed');
  }
}
