/** Addresses that no policy opens: those of the host and its network, and those that belong to no host at all. */
import {
  buildRangeTable,
  findCovering,
  findRange,
  parseIpRange,
  type IpRange,
  type RangeTable,
} from './ip-range.ts';
import type { BlockReason } from './block-reason.ts';

/** Private ranges (RFC 1918, 6598, 6890 and 2544): refused unless the operator opens them. */
export const PRIVATE_RANGES = [
  '10.0.0.0/8',
  '100.64.0.0/10',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
] as const;

/** Ranges that no setting opens: this host, its loopback, link-local (cloud metadata), multicast, reserved. */
export const NEVER_RANGES = [
  '0.0.0.0/8',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '224.0.0.0/4',
  '240.0.0.0/4',
] as const;

/** Unique local addresses, RFC 4193. */
export const PRIVATE_RANGES_V6 = ['fc00::/7'] as const;

/**
 * All IPv6 ranges that are neither global unicast (2000::/3) nor private: loopback, link-local, multicast, and, within
 * ::/3, addresses that stand for IPv4 addresses (NAT64 among them). Teredo and 6to4 are included because they also lead
 * to IPv4 addresses, which no rule would judge.
 */
export const NEVER_RANGES_V6 = [
  '::/3',
  '2001::/32',
  '2002::/16',
  '4000::/2',
  '8000::/2',
  'c000::/3',
  'e000::/4',
  'f000::/5',
  'f800::/6',
  'fe00::/7',
] as const;

export interface ClosedAddressesInput {
  /** Private ranges that the operator opened. A range that is not private stays closed. */
  openPrivateRanges: readonly string[];
  /** The host's own addresses, public ones too, and the range of the guests. */
  own: readonly string[];
}

export interface ClosedAddresses {
  own: RangeTable;
  opened: RangeTable;
}

const NEVER = buildTable([...NEVER_RANGES, ...NEVER_RANGES_V6]);
const PRIVATE = buildTable([...PRIVATE_RANGES, ...PRIVATE_RANGES_V6]);

/**
 * Compiles the closed addresses of a host, once for all its sandboxes and again when its addresses change. Throws
 * TypeError for text that is not a range.
 */
export function compileClosedAddresses({ openPrivateRanges, own }: ClosedAddressesInput): ClosedAddresses {
  return {
    own: buildTable(own, 'own'),
    opened: buildTable(openPrivateRanges, 'openPrivateRanges'),
  };
}

export function findClosedReason(closed: ClosedAddresses, address: bigint): BlockReason | undefined {
  if (findRange(NEVER, address) !== undefined) return 'reserved_address';
  if (findRange(closed.own, address) !== undefined) return 'host_address';
  const isClosed =
    findRange(PRIVATE, address) !== undefined && findRange(closed.opened, address) === undefined;
  return isClosed ? 'private_address' : undefined;
}

/** Returns why a rule cannot open `range`. A range that is only partly closed passes; its closed part stays closed. */
export function findClosedFault(opened: RangeTable, range: IpRange): string | undefined {
  if (findCovering(NEVER, range) !== undefined) return 'is never reached by a sandbox; remove it';
  const isPrivate = findCovering(PRIVATE, range) !== undefined;
  if (!isPrivate || findCovering(opened, range) !== undefined) return undefined;
  return 'is private; the operator opens such ranges with COPPICE_OPEN_PRIVATE_RANGES, a request cannot';
}

function buildTable(texts: readonly string[], field = 'range'): RangeTable {
  return buildRangeTable(texts.map((text) => parseIpRange(field, text)));
}
