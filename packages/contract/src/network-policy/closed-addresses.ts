/** Addresses that no policy opens: where a guest would reach the host, its network or what is no host at all. */
import {
  buildRangeTable,
  findCovering,
  findRange,
  parseIpRange,
  type IpRange,
  type RangeTable,
} from './ip-range.ts';
import type { BlockReason } from './block-reason.ts';

/** Ranges an organization may use inside, RFC 1918, 6598, 6890 and 2544: refused unless the operator opens them. */
export const PRIVATE_RANGES = [
  '10.0.0.0/8',
  '100.64.0.0/10',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
] as const;

/** Refused whatever the operator says: this host, its loopback, link-local (cloud metadata), multicast, reserved. */
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
 * All that is not global unicast (2000::/3) or private: loopback, link-local, multicast, and, within ::/3, addresses
 * that stand for IPv4 ones (NAT64 among them). Teredo and 6to4 lead to IPv4 addresses too, which no rule would judge.
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
  /** Private ranges that the operator opened. What is not private is not opened by it. */
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

/** Made once for all sandboxes of a host, and again when its addresses change. Throws on what is no range. */
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

/** Why nothing, or not all, of `range` can be opened by a rule. Wider ranges pass, as the closed part stays closed. */
export function findClosedFault(opened: RangeTable, range: IpRange): string | undefined {
  if (findCovering(NEVER, range) !== undefined) return 'is never reached by a sandbox; take it out';
  const isPrivate = findCovering(PRIVATE, range) !== undefined;
  if (!isPrivate || findCovering(opened, range) !== undefined) return undefined;
  return 'is private; the operator opens such ranges by COPPICE_OPEN_PRIVATE_RANGES, a request cannot';
}

function buildTable(texts: readonly string[], field = 'range'): RangeTable {
  return buildRangeTable(texts.map((text) => parseIpRange(field, text)));
}
