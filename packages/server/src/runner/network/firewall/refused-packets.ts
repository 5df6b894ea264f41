/**
 * Rules that count the guest packets that the kernel drops, so that they can be reported. Each kind has its own set,
 * with a counter for a minute by sender and destination. The size of the sets is bounded, and so is the rate at which
 * one guest may add elements; packets beyond that are counted per guest only. No rule here accepts a packet.
 */
import type { SetElement } from '../kernel/host-control.ts';

/** Most elements of all guests; a kind that does not fit is counted per guest only. */
const MAX_KINDS = 16_384;
const KINDS_PER_SECOND = 16;
const KINDS_AT_ONCE = 128;
/** Lifetime of an element. It is never renewed, so an element with more time left than before is another one. */
const KIND_LIFETIME = '1m';

const INTERFACE_BYTES = 16;
const ADDRESS_OFFSET = 16;
const PROTOCOL_OFFSET = 20;
const PORT_OFFSET = 24;

/** The sets in the order in which they are read. */
export const REFUSED_SETS = [
  { name: 'refused_ports', isSpoofed: false },
  { name: 'refused_hosts', isSpoofed: false },
  { name: 'refused_rest', isSpoofed: false },
  { name: 'refused_spoofed', isSpoofed: true },
] as const;
export type RefusedSet = (typeof REFUSED_SETS)[number];

/** Counts all refused packets: as long as it does not change, the sets need not be read. */
export const REFUSED_COUNTER = 'refused';

/** The sender and destination of refused packets, as far as they are counted separately. */
export interface RefusedKind {
  tap: string;
  ip?: string;
  port?: number;
  isSpoofed: boolean;
}

export function buildRefusedSets(): string {
  const rest = `size ${MAX_KINDS}; flags dynamic,timeout; timeout ${KIND_LIFETIME};`;
  return `
set refused_ports { type ifname . ipv4_addr . inet_proto . inet_service; ${rest} }
set refused_hosts { type ifname . ipv4_addr . inet_proto; ${rest} }
set refused_rest { type ifname; ${rest} }
set refused_spoofed { type ifname; ${rest} }
set newcomers { type ifname; size 65535; flags dynamic; }`;
}

/** Builds the chains. Known kinds only count, so a guest that floods one port does not hide its other packets. */
export function buildRefuseChain(logPrefix: string): string {
  const port = 'iifname . ip daddr . meta l4proto . th dport';
  const host = 'iifname . ip daddr . meta l4proto';
  const log = `limit rate 5/second burst 20 packets log prefix "${logPrefix} refused: "`;
  const isOver = `limit rate over ${KINDS_PER_SECOND}/second burst ${KINDS_AT_ONCE} packets`;
  return `
chain refuse_rest {
  add @refused_rest { iifname counter } drop
  drop
}
chain refuse_spoofed {
  ${log}
  counter name ${REFUSED_COUNTER}
  counter name spoofed
  add @refused_spoofed { iifname counter } drop
  drop
}
chain refuse {
  ${log}
  counter name ${REFUSED_COUNTER}
  ip6 daddr ff00::/8 drop
  ${port} @refused_ports drop
  ${host} @refused_hosts drop
  add @newcomers { iifname ${isOver} } goto refuse_rest
  meta l4proto { tcp, udp, udplite, sctp, dccp } add @refused_ports { ${port} counter } drop
  add @refused_hosts { ${host} counter } drop
  goto refuse_rest
}`;
}

/** Returns undefined for an unknown key. */
export function parseRefusedKind(set: RefusedSet, { key }: Pick<SetElement, 'key'>): RefusedKind | undefined {
  if (key.length < INTERFACE_BYTES) return undefined;
  const [tap = ''] = key.toString('latin1', 0, INTERFACE_BYTES).split('\0', 1);
  const { isSpoofed } = set;
  if (key.length < PROTOCOL_OFFSET) return { tap, isSpoofed };
  const ip = key.subarray(ADDRESS_OFFSET, PROTOCOL_OFFSET).join('.');
  if (key.length < PORT_OFFSET + 2) return { tap, ip, isSpoofed };
  return { tap, ip, port: key.readUInt16BE(PORT_OFFSET), isSpoofed };
}
