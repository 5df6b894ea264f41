/**
 * The nftables table of one instance, as text for `nft -f -`. Everything that differs between sandboxes lives in
 * sets and maps keyed by interface; the rules match the wildcard of our TAP names, so an interface that is in no
 * set gets nothing through.
 *
 * A guest's packet meets, in order:
 * ```
 * raw      entry     IPv6, foreign source, refused destination as the guest wrote it: drop; conntrack zone
 * mangle   track     connection mark, limit of connections
 * dstnat   resolver  DNS to the resolver → the forwarder's own ports
 * input    to_host   only what that translation made; nothing else of the host
 * forward  outward   destination again, now after anybody's translation; nothing invalid; not to another guest
 * srcnat             masquerade
 * ```
 * Checking the destination before translation as well is what keeps ports that the host publishes by its own
 * DNAT (containers) out of reach. Ours run before the usual priorities: the first translation of a flow wins.
 * An accept of ours does not overrule a drop in another table.
 */
import type { AddressPlan, Cidr, SlotAddresses } from './address-plan.ts';
import { NEVER_RANGES, PRIVATE_RANGES } from './address-plan.ts';
import { buildConnectionMark, buildTapName, type InstanceNames } from './slot-names.ts';

/** Connections that one guest may have open through the host, so that it cannot fill the host's table. */
const MAX_FLOWS_PER_GUEST = 8192;

export interface RulesetInput {
  names: InstanceNames;
  plan: AddressPlan;
  openRanges: readonly Cidr[];
  /** Where the DNS forwarder listens on the resolver's address. */
  dnsPorts: { udp: number; tcp: number };
  slots: readonly SlotAddresses[];
}

/** A transaction that makes the table what it must be, whatever it was before. */
export function buildRuleset(input: RulesetInput): string {
  const { names } = input;
  return [
    `add table inet ${names.table}`,
    `delete table inet ${names.table}`,
    `table inet ${names.table} {`,
    buildSets(input),
    'counter spoofed {}',
    'counter refused {}',
    'counter flooded {}',
    buildEntryChains(input),
    buildHostChains(input),
    buildForwardChains(input),
    '}',
    ...(input.slots.length > 0 ? [buildSlotElements('add', names, input.slots)] : []),
    '',
  ].join('\n');
}

/** Adds slots to, or deletes them from, an existing table. */
export function buildSlotElements(
  verb: 'add' | 'delete',
  names: InstanceNames,
  slots: readonly SlotAddresses[],
): string {
  const isAdd = verb === 'add';
  const elements: [string, (slot: SlotAddresses, tap: string) => string][] = [
    ['guests', (slot, tap) => `"${tap}" . ${slot.guest}`],
    ['zones', (slot, tap) => (isAdd ? `"${tap}" : ${slot.zone}` : `"${tap}"`)],
    ['marks', (slot, tap) => (isAdd ? `"${tap}" : ${buildConnectionMark(names, slot.zone)}` : `"${tap}"`)],
  ];
  return elements
    .map(([set, build]) => {
      const list = slots.map((slot) => build(slot, buildTapName(names, slot.index))).join(', ');
      return `${verb} element inet ${names.table} ${set} { ${list} }\n`;
    })
    .join('');
}

export function buildTableRemoval(names: InstanceNames): string {
  return `add table inet ${names.table}\ndelete table inet ${names.table}\n`;
}

function buildSets({ plan, openRanges }: RulesetInput): string {
  const opened = openRanges.map((range) => range.text);
  return `
set guests { type ifname . ipv4_addr; size 65535; }
map zones { typeof iifname : ct zone; size 65535; }
map marks { type ifname : mark; size 65535; }
set flows { type ifname; size 65535; flags dynamic; }
${buildRangeSet('never', [...NEVER_RANGES, plan.guests.text])}
${buildRangeSet('opened', opened)}
${buildRangeSet('private', PRIVATE_RANGES)}`;
}

function buildRangeSet(name: string, ranges: readonly string[]): string {
  const elements = ranges.length > 0 ? ` elements = { ${ranges.join(', ')} };` : '';
  return `set ${name} { type ipv4_addr; flags interval;${elements} }`;
}

/** Before connection tracking: who may send what where, by what the packet itself says. */
function buildEntryChains({ names, plan }: RulesetInput): string {
  return `
chain refuse {
  limit rate 5/second burst 20 packets log prefix "${names.table} refused: "
  counter name refused drop
}
chain destination {
  ip daddr @never goto refuse
  ip daddr @opened return
  ip daddr @private goto refuse
}
chain entry {
  meta nfproto != ipv4 goto refuse
  iifname . ip saddr != @guests counter name spoofed goto refuse
  ct original zone set iifname map @zones
  ip daddr ${plan.resolver} meta l4proto { tcp, udp } th dport 53 accept
  fib daddr type { local, broadcast, anycast, multicast } goto refuse
  accept
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
}`;
}

/** Between guests and the host itself: DNS, and answers to it. */
function buildHostChains({ names, plan, dnsPorts }: RulesetInput): string {
  const guest = `iifname "${names.tapPattern}"`;
  return `
chain resolver {
  type nat hook prerouting priority dstnat - 10; policy accept;
  ${guest} ip daddr ${plan.resolver} udp dport 53 dnat ip to ${plan.resolver}:${dnsPorts.udp}
  ${guest} ip daddr ${plan.resolver} tcp dport 53 dnat ip to ${plan.resolver}:${dnsPorts.tcp}
}
chain to_host {
  ip daddr ${plan.resolver} udp dport ${dnsPorts.udp} ct status dnat accept
  ip daddr ${plan.resolver} tcp dport ${dnsPorts.tcp} ct status dnat accept
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
  counter name refused drop
}`;
}

function buildForwardChains({ names, plan }: RulesetInput): string {
  return `
chain outward {
  oifname "${names.tapPattern}" goto refuse
  ct state invalid drop
  accept
  tcp flags syn tcp option maxseg size set rt mtu
}
chain inward {
  ct state established,related ct direction reply accept
  counter name refused drop
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
