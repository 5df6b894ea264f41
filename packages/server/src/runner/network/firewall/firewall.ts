/** Keeps the instance's nftables table in the kernel equal to its state here. */
import type { Logger } from 'pino';
import type { EgressPorts } from '../../../lib/protocol/egress-messages.ts';
import { SerialQueue } from '../../../lib/waiting/serial-queue.ts';
import { buildSlotAddresses, type AddressPlan, type Cidr } from '../addresses/address-plan.ts';
import type { KernelTools } from '../kernel/kernel-tools.ts';
import {
  buildOpenElements,
  buildPortChange,
  buildRuleset,
  buildSlotElements,
  buildTableRemoval,
  type FirewallSlot,
} from './ruleset.ts';
import type { InstanceNames } from '../addresses/slot-names.ts';

export interface FirewallOptions {
  names: InstanceNames;
  plan: AddressPlan;
  openRanges: readonly Cidr[];
  ports: EgressPorts;
  tools: KernelTools;
  log: Logger;
}

/**
 * Makes changes one after the other, in memory first. A full replacement of the table is built from the state in
 * memory, so it never opens a slot that was closed meanwhile.
 */
export class Firewall {
  readonly #options: FirewallOptions;
  /** The slots in the table's sets, and whether the kernel forwards for them. */
  readonly #slots = new Map<number, { isOpen: boolean }>();
  #ports: EgressPorts;
  readonly #turns = new SerialQueue();

  constructor(
    options: FirewallOptions,
    found: { admitted: readonly number[]; isOpen: (index: number) => boolean },
  ) {
    this.#options = options;
    this.#ports = options.ports;
    for (const index of found.admitted) this.#slots.set(index, { isOpen: found.isOpen(index) });
  }

  isOpen(index: number): boolean {
    return this.#slots.get(index)?.isOpen ?? false;
  }

  /** Replaces the whole table in one transaction; open connections that are still allowed continue. */
  install(): Promise<void> {
    return this.#turns.run(() => this.#install());
  }

  /** Adds slots, which are open until closed: most sandboxes have no rules and need not wait for any. */
  admit(indexes: readonly number[]): Promise<void> {
    return this.#turns.run(async () => {
      for (const index of indexes) this.#slots.set(index, { isOpen: true });
      await this.#change(
        (slots) => buildSlotElements('add', this.#options.names, slots),
        this.#describe(indexes),
      );
    });
  }

  expel(indexes: readonly number[]): Promise<void> {
    return this.#turns.run(async () => {
      const known = this.#describe(indexes.filter((index) => this.#slots.has(index)));
      for (const { index } of known) this.#slots.delete(index);
      if (known.length === 0) return;
      await this.#change((slots) => buildSlotElements('delete', this.#options.names, slots), known);
    });
  }

  /**
   * Sets whether the kernel forwards for a slot; otherwise its TCP goes to the egress process. Does nothing if that is
   * so already. After a rejection a slot that was to be closed may still be open.
   */
  setOpen(index: number, isOpen: boolean): Promise<void> {
    return this.#turns.run(async () => {
      const slot = this.#slots.get(index);
      if (slot === undefined) throw new Error(`network slot ${index} is not in the table`);
      if (slot.isOpen === isOpen) return;
      const verb = isOpen ? 'add' : 'delete';
      slot.isOpen = isOpen;
      try {
        await this.#change(
          (slots) => buildOpenElements(verb, this.#options.names, slots),
          this.#describe([index]),
        );
      } catch (error) {
        slot.isOpen = !isOpen;
        throw error;
      }
    });
  }

  /** Sets the ports on which the egress process listens from now on. */
  setPorts(ports: EgressPorts): Promise<void> {
    return this.#turns.run(async () => {
      this.#ports = ports;
      const { names, plan } = this.#options;
      await this.#change(() => buildPortChange({ names, plan, ports }), []);
    });
  }

  /** Restores the table if it is gone. */
  restore(): Promise<void> {
    return this.#turns.run(async () => {
      const { tools, names, log } = this.#options;
      if (await tools.hasTable(names.table)) return;
      await this.#install();
      log.warn(
        { table: names.table },
        'another program removed the nftables table of this service; the runner restored it',
      );
    });
  }

  remove(): Promise<void> {
    return this.#turns.run(() => this.#options.tools.nft(buildTableRemoval(this.#options.names)));
  }

  /** Changes the table. After a failure, for example when another program changed it, the whole table is replaced. */
  async #change(build: (slots: FirewallSlot[]) => string, slots: FirewallSlot[]): Promise<void> {
    const { tools, log } = this.#options;
    try {
      await tools.nft(build(slots));
    } catch (error) {
      log.warn({ err: error }, 'the nftables table of this service could not be changed; replacing it');
      await this.#install();
    }
  }

  async #install(): Promise<void> {
    const { names, plan, openRanges, tools } = this.#options;
    const slots = this.#describe([...this.#slots.keys()]);
    await tools.nft(buildRuleset({ names, plan, openRanges, ports: this.#ports, slots }));
  }

  #describe(indexes: readonly number[]): FirewallSlot[] {
    return indexes.map((index) => ({
      ...buildSlotAddresses(this.#options.plan, index),
      isOpen: this.isOpen(index),
    }));
  }
}
