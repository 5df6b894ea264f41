/** The instance's nftables table in the kernel, kept equal to what it must be. */
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
 * Changes happen one after the other, in memory first: a table that is replaced as a whole is built from what holds
 * then, so it never opens what was closed meanwhile.
 */
export class Firewall {
  readonly #options: FirewallOptions;
  /** Slots that are in the table's sets, and whether the kernel forwards for them. */
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

  /** Replaces the whole table in one transaction; connections that are open and still allowed go on. */
  install(): Promise<void> {
    return this.#turns.run(() => this.#install());
  }

  /** New slots are open until somebody closes them: most sandboxes have no rules, and wait for none. */
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
   * Whether the kernel forwards for a slot; otherwise its TCP goes to the egress process. Nothing is done if it is so
   * already. After a rejection a slot that was to be closed may be open.
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

  /** Where the egress process listens from now on. */
  setPorts(ports: EgressPorts): Promise<void> {
    return this.#turns.run(async () => {
      this.#ports = ports;
      const { names, plan } = this.#options;
      await this.#change(() => buildPortChange({ names, plan, ports }), []);
    });
  }

  /** Puts the table back if it is gone. */
  restore(): Promise<void> {
    return this.#turns.run(async () => {
      const { tools, names, log } = this.#options;
      if (await tools.hasTable(names.table)) return;
      await this.#install();
      log.warn({ table: names.table }, 'another program had removed our nftables table; it is back');
    });
  }

  remove(): Promise<void> {
    return this.#turns.run(() => this.#options.tools.nft(buildTableRemoval(this.#options.names)));
  }

  /** When the sets are not what we think, somebody else changed the table: then it is replaced as a whole. */
  async #change(build: (slots: FirewallSlot[]) => string, slots: FirewallSlot[]): Promise<void> {
    const { tools, log } = this.#options;
    try {
      await tools.nft(build(slots));
    } catch (error) {
      log.warn({ err: error }, 'the nftables table is not as we left it; replacing it');
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
