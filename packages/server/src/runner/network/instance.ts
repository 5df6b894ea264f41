/**
 * The resources of one instance on the host that all its guests share; opened in an order that is safe at each step.
 */
import { buildAddressPlan, parseOpenRanges, type AddressPlan } from './addresses/address-plan.ts';
import { HostControl } from './kernel/host-control.ts';
import type { Firewall } from './firewall/firewall.ts';
import type { GuestEgress } from './egress/guest-egress.ts';
import { ensureForwarding } from './host/host-settings.ts';
import { listResolverAddresses, surveyHost, type HostSurvey } from './host/host-survey.ts';
import { KernelTools, type HostPrograms } from './kernel/kernel-tools.ts';
import { openEgress, type EgressOptions } from './egress/open-egress.ts';
import { removeResolvers } from './remove-instance.ts';
import { removeInterfaces, SlotDevices, type SlotDevicesOptions } from './slots/slot-devices.ts';
import { buildConnectionMark, buildInstanceNames, type InstanceNames } from './addresses/slot-names.ts';

export interface InstanceOptions extends EgressOptions {
  slug: string;
  guestCidr: string;
  tools: HostPrograms;
}

export interface Instance {
  names: InstanceNames;
  plan: AddressPlan;
  mtu: number;
  /** Slots whose TAP existed already. */
  found: number[];
  firewall: Firewall;
  devices: SlotDevices;
  egress: GuestEgress;
  close(): Promise<void>;
  /** Removes these slots and all shared resources; call it after `close`. */
  removeAll(indexes: readonly number[]): Promise<void>;
}

/** Opens the instance. `onTableRemoved` may be called without cause and must not throw. */
export async function openInstance(options: InstanceOptions, onTableRemoved: () => void): Promise<Instance> {
  const { log } = options;
  const names = buildInstanceNames(options.slug);
  const plan = buildAddressPlan(options.guestCidr);
  const openRanges = parseOpenRanges(options.openPrivateRanges);
  const tools = new KernelTools(options.tools);
  await using opened = new AsyncDisposableStack();
  const hostControl = opened.use(new HostControl(options.tools.hostctl));
  // Zone 0 belongs to no slot: this only checks, before anything depends on it, that the kernel can flush.
  await hostControl.flushConnections(buildConnectionMark(names, 0));
  const survey = await readSurvey(tools, names, plan);
  await clearStale(tools, names, survey);
  await tools.ipBatch([`address replace ${plan.resolver}/32 dev lo label ${names.resolverLabel} scope host`]);
  const { found } = survey;
  const { firewall, egress } = await openEgress(opened, options, {
    names,
    plan,
    openRanges,
    found,
    tools,
    hostControl,
  });
  opened.use(await hostControl.watchTable(names.table, onTableRemoved));
  // The host becomes a router only when the rules for it are in place.
  await firewall.install();
  if (ensureForwarding())
    log.info('set net.ipv4.ip_forward to 1: guests reach the network through this host');
  log.info({ guests: plan.guests.text, resolver: plan.resolver, found: found.length }, 'guest network open');
  const parts = { names, plan, mtu: survey.mtu, tools, firewall };
  const devices = new SlotDevices({ ...parts, hostControl });
  const resources = opened.move();
  return {
    names,
    plan,
    mtu: survey.mtu,
    found,
    firewall,
    devices,
    egress,
    close: () => resources.disposeAsync(),
    removeAll: (indexes) => removeAll({ ...parts, hostctl: options.tools.hostctl }, indexes),
  };
}

async function readSurvey(tools: KernelTools, names: InstanceNames, plan: AddressPlan): Promise<HostSurvey> {
  const [interfaces, routes] = await Promise.all([tools.listInterfaces(), tools.listRoutes()]);
  return surveyHost({ interfaces, routes }, names, plan);
}

async function clearStale(tools: KernelTools, names: InstanceNames, survey: HostSurvey): Promise<void> {
  await removeInterfaces(tools, names, survey.staleTaps);
  await removeResolvers(tools, survey.staleResolvers);
}

/** Removes interfaces before the rules that guard them. Starts hostctl again, as that of `open` is closed by now. */
async function removeAll(
  { hostctl, ...options }: Omit<SlotDevicesOptions, 'hostControl'> & { hostctl: string },
  indexes: readonly number[],
): Promise<void> {
  const { names, tools, firewall } = options;
  using hostControl = new HostControl(hostctl);
  await new SlotDevices({ ...options, hostControl }).remove(indexes);
  await firewall.remove();
  await removeResolvers(tools, listResolverAddresses(await tools.listInterfaces(), names));
}
