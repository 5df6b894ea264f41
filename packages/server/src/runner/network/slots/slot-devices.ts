/** Makes and removes a slot on the host: its TAP with addresses and settings, and its elements in the table. */
import { AppError } from '@coppice/contract';
import { GUEST_MAC } from '../../vm/shape.ts';
import { buildSlotAddresses, type AddressPlan } from '../addresses/address-plan.ts';
import type { HostControl } from '../kernel/host-control.ts';
import type { Firewall } from '../firewall/firewall.ts';
import { writeTapSettings } from '../host/host-settings.ts';
import type { KernelTools } from '../kernel/kernel-tools.ts';
import { buildConnectionMark, buildTapName, type InstanceNames } from '../addresses/slot-names.ts';

/** The same for every TAP, so that a restored guest's ARP entry for its gateway stays valid on any slot. */
const GATEWAY_MAC = '06:00:00:00:00:02';

export interface SlotDevicesOptions {
  names: InstanceNames;
  plan: AddressPlan;
  mtu: number;
  tools: KernelTools;
  firewall: Firewall;
  hostControl: Pick<HostControl, 'flushConnections'>;
}

export class SlotDevices {
  readonly #options: SlotDevicesOptions;

  constructor(options: SlotDevicesOptions) {
    this.#options = options;
  }

  /** Makes slots. After a failure some may be half made; `remove` clears them. */
  async create(indexes: readonly number[]): Promise<void> {
    const { tools, firewall, names } = this.#options;
    await tools.ipBatch(indexes.flatMap((index) => this.#commandsToCreate(index)));
    for (const index of indexes) writeTapSettings(buildTapName(names, index));
    await firewall.admit(indexes);
  }

  /** Removes all parts of the slots that exist, even if a VMM holds them, and their connections. */
  async remove(indexes: readonly number[]): Promise<void> {
    const { firewall, hostControl, names, plan } = this.#options;
    await firewall.expel(indexes);
    const taps = indexes.map((index) => buildTapName(names, index));
    await removeInterfaces(this.#options.tools, names, taps);
    for (const index of indexes)
      await hostControl.flushConnections(buildConnectionMark(names, buildSlotAddresses(plan, index).zone));
  }

  #commandsToCreate(index: number): string[] {
    const { names, plan, mtu } = this.#options;
    const tap = buildTapName(names, index);
    const { gateway, guest, prefix } = buildSlotAddresses(plan, index);
    return [
      `tuntap add dev ${tap} mode tap vnet_hdr`,
      `link set dev ${tap} address ${GATEWAY_MAC} mtu ${mtu} addrgenmode none up`,
      `address add ${gateway}/${prefix} dev ${tap}`,
      // No ARP for guests: the neighbour table belongs to the whole host, and a full one would cut off others.
      `neighbour replace ${guest} lladdr ${GUEST_MAC} dev ${tap} nud permanent`,
    ];
  }
}

/**
 * Removes interfaces; those already gone are fine. Deletes them as a group: one by one, each would wait for its own RCU
 * grace period (16 TAPs: 320 ms against 30 ms).
 */
export async function removeInterfaces(
  tools: KernelTools,
  names: InstanceNames,
  interfaceNames: readonly string[],
): Promise<void> {
  if (interfaceNames.length === 0) return;
  const group = names.removalGroup;
  const commands = interfaceNames.map((name) => `link set dev ${name} group ${group}`);
  const failure = await tools.ipBatchForced([...commands, `link delete group ${group}`]);
  if (failure === undefined) return;
  const left = (await tools.listInterfaces()).filter((link) => interfaceNames.includes(link.ifname));
  if (left.length === 0) return;
  throw new AppError('internal', `removing ${left.map((link) => link.ifname).join(', ')}`, {
    cause: failure,
  });
}
