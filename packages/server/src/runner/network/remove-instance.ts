/** Removes the network of an instance from the host, when no process has it open. */
import { listResolverAddresses } from './host/host-survey.ts';
import { KernelTools, type ToolPaths } from './kernel/kernel-tools.ts';
import { buildTableRemoval } from './firewall/ruleset.ts';
import { removeInterfaces } from './slots/slot-devices.ts';
import { buildInstanceNames, findTapIndex } from './addresses/slot-names.ts';

/** Removes running VMs' networks too, and interfaces before the rules that guard them. Forwarding stays enabled. */
export async function removeInstance(options: { slug: string; tools: ToolPaths }): Promise<void> {
  const names = buildInstanceNames(options.slug);
  const tools = new KernelTools(options.tools);
  const interfaces = await tools.listInterfaces();
  const taps = interfaces
    .map((link) => link.ifname)
    .filter((name) => findTapIndex(names, name) !== undefined);
  await removeInterfaces(tools, names, taps);
  await tools.nft(buildTableRemoval(names));
  await removeResolvers(tools, listResolverAddresses(interfaces, names));
}

export async function removeResolvers(tools: KernelTools, addresses: readonly string[]): Promise<void> {
  if (addresses.length > 0)
    await tools.ipBatch(addresses.map((address) => `address delete ${address} dev lo`));
}
