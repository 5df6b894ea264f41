/** The instance's nftables table in the kernel, kept equal to what it must be. */
import type { Logger } from 'pino';
import { buildSlotAddresses, type AddressPlan, type Cidr, type SlotAddresses } from './address-plan.ts';
import type { KernelTools } from './kernel-tools.ts';
import { buildRuleset, buildSlotElements, buildTableRemoval } from './ruleset.ts';
import type { InstanceNames } from './slot-names.ts';

export interface FirewallOptions {
  names: InstanceNames;
  plan: AddressPlan;
  openRanges: readonly Cidr[];
  dnsPorts: { udp: number; tcp: number };
  tools: KernelTools;
  log: Logger;
}

export class Firewall {
  readonly #options: FirewallOptions;
  /** Slots that are in the table's sets. */
  readonly #admitted: Set<number>;

  constructor(options: FirewallOptions, admitted: readonly number[]) {
    this.#options = options;
    this.#admitted = new Set(admitted);
  }

  /** Replaces the whole table in one transaction; connections that are open and still allowed go on. */
  async install(): Promise<void> {
    const slots = this.#addresses([...this.#admitted]);
    await this.#options.tools.nft(buildRuleset({ ...this.#options, slots }));
  }

  async admit(indexes: readonly number[]): Promise<void> {
    for (const index of indexes) this.#admitted.add(index);
    await this.#change('add', indexes);
  }

  async expel(indexes: readonly number[]): Promise<void> {
    const known = indexes.filter((index) => this.#admitted.delete(index));
    if (known.length > 0) await this.#change('delete', known);
  }

  /** Puts the table back if it is gone. */
  async restore(): Promise<void> {
    const { tools, names, log } = this.#options;
    if (await tools.hasTable(names.table)) return;
    await this.install();
    log.warn({ table: names.table }, 'another program had removed our nftables table; it is back');
  }

  async remove(): Promise<void> {
    await this.#options.tools.nft(buildTableRemoval(this.#options.names));
  }

  /** When the sets are not what we think, somebody else changed the table: then it is replaced as a whole. */
  async #change(verb: 'add' | 'delete', indexes: readonly number[]): Promise<void> {
    const { tools, names, log } = this.#options;
    try {
      await tools.nft(buildSlotElements(verb, names, this.#addresses(indexes)));
    } catch (error) {
      log.warn({ err: error }, 'the nftables table is not as we left it; replacing it');
      await this.install();
    }
  }

  #addresses(indexes: readonly number[]): SlotAddresses[] {
    return indexes.map((index) => buildSlotAddresses(this.#options.plan, index));
  }
}
