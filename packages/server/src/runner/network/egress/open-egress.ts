/** Opens the outbound network of all guests: the egress process, the table that leads to it, and the notes of both. */
import type { Logger } from 'pino';
import type { EgressStart, VmNote } from '../../../lib/protocol/egress-messages.ts';
import type { AddressPlan, Cidr } from '../addresses/address-plan.ts';
import { ClosedHere, listOwnAddresses, watchOwnAddresses } from './closed-here.ts';
import type { HostControl } from '../kernel/host-control.ts';
import { EgressProcess } from './egress-process.ts';
import type { EgressProgram } from './egress-session.ts';
import { Firewall } from '../firewall/firewall.ts';
import { GuestEgress } from './guest-egress.ts';
import type { KernelTools } from '../kernel/kernel-tools.ts';
import { readOpenSlots } from '../firewall/open-slots.ts';
import { RefusedReader } from '../firewall/refused-reader.ts';
import type { InstanceNames } from '../addresses/slot-names.ts';

export interface EgressOptions {
  /** Private ranges that guests may reach. */
  openPrivateRanges: readonly string[];
  /** Resolvers for the guests' DNS queries; the host's own resolvers if absent. */
  upstreamResolvers?: readonly string[];
  egressProgram: EgressProgram;
  /** Receives notes for the audit logs of guests; settles when they are durable. */
  onNotes: (notes: VmNote[]) => Promise<void>;
  log: Logger;
}

export interface EgressParts {
  names: InstanceNames;
  plan: AddressPlan;
  openRanges: readonly Cidr[];
  /** Slots whose TAP existed already. */
  found: readonly number[];
  tools: KernelTools;
  hostControl: HostControl;
}

/** Puts all that it opens into `opened`. Does not install the table yet. */
export async function openEgress(
  opened: AsyncDisposableStack,
  options: EgressOptions,
  parts: EgressParts,
): Promise<{ firewall: Firewall; egress: GuestEgress }> {
  const { names, plan, openRanges, found, tools, hostControl } = parts;
  const { egressProgram: program, onNotes, log } = options;
  let closed = new ClosedHere({ openPrivateRanges: options.openPrivateRanges, own: [plan.guests.text] });
  const start = async (): Promise<Omit<EgressStart, 'type'>> => {
    closed = await readClosed(options, parts);
    const resolvers = [...(options.upstreamResolvers ?? [])];
    return { resolver: plan.resolver, resolvers, closed: closed.input };
  };
  const isOpen = await readOpenSlots(names, hostControl);
  const { process, ports } = await EgressProcess.open({
    program,
    start,
    onPorts: (next) => firewall.setPorts(next),
    onNotes: (notes) => egress.passNotes(notes),
    log,
  });
  opened.use(process);
  const firewall = new Firewall({ names, plan, openRanges, ports, tools, log }, { admitted: found, isOpen });
  const onRefused: GuestEgress['noteRefused'] = (kind, count) => egress.noteRefused(kind, count);
  const refused = opened.use(new RefusedReader({ table: names.table, hostControl, onRefused, log }));
  const egress = new GuestEgress({
    firewall,
    hostControl,
    process,
    refused,
    closed: () => closed,
    onNotes,
    log,
  });
  const onNew = async (address: string): Promise<void> => {
    const next = await readClosed(options, parts);
    await process.setClosed(next.input);
    closed = next;
    log.info({ address }, 'the host has a new address, which is closed to guests');
  };
  opened.use(watchOwnAddresses({ closed: () => closed, onNew, log }));
  return { firewall, egress };
}

async function readClosed(
  { openPrivateRanges }: EgressOptions,
  { tools, plan }: EgressParts,
): Promise<ClosedHere> {
  const own = listOwnAddresses(await tools.listInterfaces(), plan);
  return new ClosedHere({ openPrivateRanges, own });
}
