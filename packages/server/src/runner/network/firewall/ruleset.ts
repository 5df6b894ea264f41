/**
 * The nftables table of one instance, as text for `nft -f -`. All differences between sandboxes are in sets and maps
 * keyed by interface. The rules match the wildcard of the instance's TAP names, so an interface that is in no set gets
 * nothing through. An interface that is not in `open` belongs to a guest with network rules: the kernel never forwards
 * its packets, its TCP goes to the egress process, and all else but DNS is refused.
 *
 * A guest's packet passes these chains, in order:
 * ```
 * raw      entry     IPv6, foreign source, refused destination as the guest wrote it: drop; conntrack zone
 * mangle   track     connection mark, limit of connections
 * dstnat   to_egress DNS to the resolver, the credential port, any TCP of a guest with rules → the egress process
 * input    to_host   only flows from that translation; nothing else of the host
 * forward  outward   only guests in `open`; destination again, now after every translation; nothing invalid
 * srcnat             masquerade
 * ```
 * A guest with rules may send TCP to any destination: the egress process refuses addresses that are closed to all
 * guests, at once and with a note. Established flows are forwarded only while the guest is in `open`. The check of the
 * destination before translation keeps ports that the host publishes by its own DNAT (containers) out of reach. The
 * chains run before the usual priorities, as the first translation of a flow wins. An accept in this table does not
 * overrule a drop in another table.
 */
import { NEVER_RANGES, PRIVATE_RANGES } from '@coppice/contract';
import type { EgressPorts } from '../../../lib/protocol/egress-messages.ts';
import { PROXY_ADDRESS, PROXY_PORT } from '../../../lib/credential-services/proxy-address.ts';
import type { AddressPlan, Cidr, SlotAddresses } from '../addresses/address-plan.ts';
import { buildRefuseChain, buildRefusedSets, REFUSED_COUNTER } from './refused-packets.ts';
import { buildConnectionMark, buildTapName, type InstanceNames } from '../addresses/slot-names.ts';

/** Most open connections of one guest through the host, so that it cannot fill the host's table. */
const MAX_FLOWS_PER_GUEST = 8192;
/** Limit for connections to the egress process, which judges those of all guests in sequence; others must retry. */
const MAX_CONNECTS_PER_SECOND = 500;
const CONNECT_BURST = 4000;
export const OPEN_SET = 'open';

/** A slot; the kernel forwards the packets of an open one. */
export type FirewallSlot = SlotAddresses & { isOpen: boolean };

export interface RulesetInput {
  names: InstanceNames;
  plan: AddressPlan;
  openRanges: readonly Cidr[];
  /** Ports of the egress process on the resolver's address. */
  ports: EgressPorts;
  slots: readonly FirewallSlot[];
}

/** Builds a transaction that makes the table complete, from any former state. */
export function buildRuleset(input: RulesetInput): string {
  const { names } = input;
  return [
    `add table inet ${names.table}`,
    `delete table inet ${names.table}`,
    `table inet ${names.table} {`,
    buildSets(input),
    'counter spoofed {}',
    `counter ${REFUSED_COUNTER} {}`,
    'counter flooded {}',
    buildEntryChains(input),
    buildHostChains(input),
    buildForwardChains(input),
    '}',
    buildPortElements(input),
    ...(input.slots.length > 0 ? [buildSlotElements('add', names, input.slots)] : []),
    '',
  ].join('\n');
}

/** Builds a transaction that directs connections to new ports of the egress process. */
export function buildPortChange(input: PortsInput): string {
  const { table } = input.names;
  return [
    ...['set services', 'map redirects', 'map proxy', 'set listeners'].map(
      (each) => `flush ${each.replace(' ', ` inet ${table} `)}\n`,
    ),
    buildPortElements(input),
  ].join('');
}

type PortsInput = Pick<RulesetInput, 'names' | 'plan' | 'ports'>;

function buildPortElements({ names, plan, ports }: PortsInput): string {
  const { resolver } = plan;
  const listenersByService: [string, number][] = [
    [`${resolver} . udp . 53`, ports.dnsUdp],
    [`${resolver} . tcp . 53`, ports.dnsTcp],
    [`${PROXY_ADDRESS} . tcp . ${PROXY_PORT}`, ports.credentials],
  ];
  const services = listenersByService.map(([service]) => service);
  const redirects = listenersByService.map(([service, port]) => `${service} : ${resolver} . ${port}`);
  const tcpPorts = new Set([ports.dnsTcp, ports.credentials, ports.proxy]);
  const listeners = [`udp . ${ports.dnsUdp}`, ...[...tcpPorts].map((port) => `tcp . ${port}`)];
  const add = (set: string, elements: readonly string[]): string =>
    `add element inet ${names.table} ${set} { ${elements.join(', ')} }\n`;
  const proxy = [`tcp : ${resolver} . ${ports.proxy}`];
  return (
    add('services', services) +
    add('redirects', redirects) +
    add('proxy', proxy) +
    add('listeners', listeners)
  );
}

/** Builds a transaction that adds slots to, or deletes them from, an existing table. */
export function buildSlotElements(
  verb: 'add' | 'delete',
  names: InstanceNames,
  slots: readonly FirewallSlot[],
): string {
  const isAdd = verb === 'add';
  const elements: [string, (slot: FirewallSlot, tap: string) => string][] = [
    ['guests', (slot, tap) => `"${tap}" . ${slot.guest}`],
    ['zones', (slot, tap) => (isAdd ? `"${tap}" : ${slot.zone}` : `"${tap}"`)],
    ['marks', (slot, tap) => (isAdd ? `"${tap}" : ${buildConnectionMark(names, slot.zone)}` : `"${tap}"`)],
  ];
  return elements
    .map(([set, build]) => {
      const list = slots.map((slot) => build(slot, buildTapName(names, slot.index))).join(', ');
      return `${verb} element inet ${names.table} ${set} { ${list} }\n`;
    })
    .join('')
    .concat(
      buildOpenElements(
        verb,
        names,
        slots.filter((slot) => slot.isOpen),
      ),
    );
}

/** Builds a transaction that starts or stops forwarding by the kernel for slots. */
export function buildOpenElements(
  verb: 'add' | 'delete',
  names: InstanceNames,
  slots: readonly SlotAddresses[],
): string {
  if (slots.length === 0) return '';
  const list = slots.map((slot) => `"${buildTapName(names, slot.index)}"`).join(', ');
  return `${verb} element inet ${names.table} ${OPEN_SET} { ${list} }\n`;
}

export function buildTableRemoval(names: InstanceNames): string {
  return `add table inet ${names.table}\ndelete table inet ${names.table}\n`;
}

/** `services` has the keys of `redirects`, as Linux 6.1 refuses to test a map for a key. */
function buildSets({ plan, openRanges }: RulesetInput): string {
  const opened = openRanges.map((range) => range.text);
  return `
set guests { type ifname . ipv4_addr; size 65535; }
map zones { typeof iifname : ct zone; size 65535; }
map marks { type ifname : mark; size 65535; }
set ${OPEN_SET} { type ifname; size 65535; }
set flows { type ifname; size 65535; flags dynamic; }
set connects { type ifname; size 65535; flags dynamic; }
set services { type ipv4_addr . inet_proto . inet_service; size 8; }
map redirects { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service; size 8; }
map proxy { type inet_proto : ipv4_addr . inet_service; size 1; }
set listeners { type inet_proto . inet_service; size 8; }
${buildRefusedSets()}
${buildRangeSet('never', [...NEVER_RANGES, plan.guests.text])}
${buildRangeSet('opened', opened)}
${buildRangeSet('private', PRIVATE_RANGES)}`;
}

function buildRangeSet(name: string, ranges: readonly string[]): string {
  const elements = ranges.length > 0 ? ` elements = { ${ranges.join(', ')} };` : '';
  return `set ${name} { type ipv4_addr; flags interval;${elements} }`;
}

/** Chains before connection tracking: they check source and destination in the packet itself. */
function buildEntryChains({ names }: RulesetInput): string {
  return `
${buildRefuseChain(names.table)}
chain destination {
  ip daddr @never goto refuse
  ip daddr @opened return
  ip daddr @private goto refuse
}
chain entry {
  meta nfproto != ipv4 goto refuse
  iifname . ip saddr != @guests goto refuse_spoofed
  ct original zone set iifname map @zones
  ip daddr . meta l4proto . th dport @services accept
  iifname != @${OPEN_SET} meta l4proto tcp accept
  iifname != @${OPEN_SET} goto refuse
  fib daddr type { local, broadcast, anycast, multicast } goto refuse
  jump destination
}
chain raw {
  type filter hook prerouting priority raw; policy accept;
  iifname "${names.tapPattern}" jump entry
}
chain track {
  type filter hook prerouting priority mangle; policy accept;
  iifname != "${names.tapPattern}" accept
  ct mark set iifname map @marks
  ct state new add @flows { iifname ct count over ${MAX_FLOWS_PER_GUEST} } counter name flooded drop
  ct state new iifname != @${OPEN_SET} meta l4proto tcp add @connects { iifname limit rate over ${MAX_CONNECTS_PER_SECOND}/second burst ${CONNECT_BURST} packets } counter name flooded drop
}`;
}

/**
 * Chains that allow traffic between guests and the egress process, and nothing else of the host. A flow to a process
 * that is gone ends with a reset. A program that has since taken its port, on all addresses of the host, gets nothing.
 */
function buildHostChains({ names, plan }: RulesetInput): string {
  const guest = `iifname "${names.tapPattern}"`;
  return `
chain to_egress {
  type nat hook prerouting priority dstnat - 10; policy accept;
  ${guest} dnat ip to ip daddr . meta l4proto . th dport map @redirects
  ${guest} iifname != @${OPEN_SET} meta l4proto tcp dnat ip to meta l4proto map @proxy
}
chain to_host {
  socket wildcard 1 goto refuse
  ip daddr ${plan.resolver} meta l4proto . th dport @listeners ct status dnat accept
  ip daddr ${plan.resolver} ct status dnat meta l4proto tcp reject with tcp reset
  ip daddr ${plan.resolver} ct status dnat drop
  goto refuse
}
chain input {
  type filter hook input priority filter - 10; policy accept;
  ${guest} jump to_host
}
chain output {
  type filter hook output priority filter - 10; policy accept;
  oifname != "${names.tapPattern}" accept
  ct state established,related accept
  counter name ${REFUSED_COUNTER} drop
}`;
}

function buildForwardChains({ names, plan }: RulesetInput): string {
  return `
chain outward {
  oifname "${names.tapPattern}" goto refuse
  iifname != @${OPEN_SET} meta l4proto tcp reject with tcp reset
  iifname != @${OPEN_SET} goto refuse
  ct state invalid drop
  jump destination
  tcp flags syn tcp option maxseg size set rt mtu
}
chain inward {
  oifname != @${OPEN_SET} counter name ${REFUSED_COUNTER} drop
  ct state established,related ct direction reply accept
  counter name ${REFUSED_COUNTER} drop
}
chain forward {
  type filter hook forward priority filter - 10; policy accept;
  iifname "${names.tapPattern}" jump outward
  oifname "${names.tapPattern}" jump inward
}
chain srcnat {
  type nat hook postrouting priority srcnat - 10; policy accept;
  ip saddr ${plan.guests.text} oifname != "${names.tapPattern}" masquerade
}`;
}
