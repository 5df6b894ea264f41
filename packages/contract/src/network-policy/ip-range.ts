/** CIDR ranges, and a table that finds the range of an address. */
import { findMappedIpv4, formatIpAddress, isIpv4, readIpLiteral } from './ip-address.ts';
import type { RuleFault } from './rule-fault.ts';

const IPV4_BITS = 32;
const IPV6_BITS = 128;
const PREFIX = /^(?:0|[1-9]\d{0,2})$/u;

export interface IpRange {
  /** The canonical spelling; a single address has no prefix. */
  text: string;
  first: bigint;
  last: bigint;
  prefix: number;
}

/** Parses `address` or `address/prefix`; `prefixText` is the text after the slash. */
export function readIpRange(addressText: string, prefixText: string | undefined): IpRange | RuleFault {
  const literal = readIpLiteral(addressText);
  if (literal === undefined) return { fault: 'is not an address range; write it like 203.0.113.0/24' };
  const { address } = literal;
  const mapped = findMappedIpv4(address);
  if (mapped !== undefined) {
    return { fault: `is an IPv4 address in the form of IPv6; write it like ${formatIpAddress(mapped)}` };
  }
  const bits = isIpv4(address) ? IPV4_BITS : IPV6_BITS;
  const prefix = prefixText === undefined ? bits : Number(prefixText);
  if ((prefixText !== undefined && !PREFIX.test(prefixText)) || prefix > bits) {
    return { fault: `must have a prefix from 0 to ${bits} after the slash` };
  }
  if (prefix === bits) return { text: literal.text, first: address, last: address, prefix };
  const { first, last } = findEnds(address, bits - prefix);
  if (first === address) return { text: `${literal.text}/${prefix}`, first, last, prefix };
  return { fault: `has bits set after its prefix; write ${formatIpAddress(first)}/${prefix}` };
}

/** Returns the range with this prefix that contains `address`. */
export function buildIpRange(address: bigint, prefix: number): IpRange {
  const bits = isIpv4(address) ? IPV4_BITS : IPV6_BITS;
  const { first, last } = findEnds(address, bits - prefix);
  const text = formatIpAddress(first);
  return { text: prefix === bits ? text : `${text}/${prefix}`, first, last, prefix };
}

function findEnds(address: bigint, hostBits: number): { first: bigint; last: bigint } {
  const shift = BigInt(hostBits);
  const first = (address >> shift) << shift;
  return { first, last: first + (1n << shift) - 1n };
}

/** Parses a range of Coppice's code or settings. Throws TypeError for an invalid one; `field` names its place. */
export function parseIpRange(field: string, text: string): IpRange {
  const [address = '', prefix, ...rest] = text.split('/');
  const range = rest.length > 0 ? { fault: 'has two slashes' } : readIpRange(address, prefix);
  if ('fault' in range) throw new TypeError(`${field}: ${JSON.stringify(text)} ${range.fault}`);
  return range;
}

export function containsRange(outer: IpRange, inner: IpRange): boolean {
  return outer.first <= inner.first && inner.last <= outer.last;
}

/** Ranges sorted by first address, none within another. Of two CIDRs that overlap, one contains the other. */
export type RangeTable = readonly IpRange[];

export function buildRangeTable(ranges: readonly IpRange[]): RangeTable {
  const sorted = ranges.toSorted(compareRanges);
  const outer: IpRange[] = [];
  for (const range of sorted) {
    const before = outer.at(-1);
    if (before === undefined || range.last > before.last) outer.push(range);
  }
  return outer;
}

/** Returns the widest range of the table that contains `address`. */
export function findRange(table: RangeTable, address: bigint): IpRange | undefined {
  let low = 0;
  let high = table.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const range = table[middle];
    if (range === undefined) return undefined;
    if (address < range.first) high = middle;
    else if (address > range.last) low = middle + 1;
    else return range;
  }
  return undefined;
}

/** Returns a range of the table that contains all of `range`. */
export function findCovering(table: RangeTable, range: IpRange): IpRange | undefined {
  const found = findRange(table, range.first);
  return found !== undefined && containsRange(found, range) ? found : undefined;
}

function compareRanges(a: IpRange, b: IpRange): number {
  if (a.first !== b.first) return a.first < b.first ? -1 : 1;
  return a.prefix - b.prefix;
}
