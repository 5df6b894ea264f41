/** Addresses to which the service itself may send what a tenant has asked for, such as webhooks. */
import { compileClosedAddresses, findClosedReason, type ClosedAddresses } from './closed-addresses.ts';
import { parseIpAddress } from './ip-address.ts';
import { buildRangeTable, findRange, parseIpRange, type RangeTable } from './ip-range.ts';

export interface ReceiverAddresses {
  opened: RangeTable;
  closed: ClosedAddresses;
}

/**
 * `public`: may be reached, with TLS. `opened`: the operator has opened it, TLS or not. `closed`: this host, its
 * networks, or no host at all.
 */
export type ReceiverVerdict = 'public' | 'opened' | 'closed';

/** Compiles ranges that the operator opens, of any kind, and the own addresses of the host. Throws TypeError. */
export function compileReceiverAddresses(open: readonly string[], own: readonly string[]): ReceiverAddresses {
  return {
    opened: buildRangeTable(open.map((range) => parseIpRange('open ranges', range))),
    closed: compileClosedAddresses({ openPrivateRanges: [], own }),
  };
}

/** Judges an address as a resolver or a URL writes it. Text that is no address is closed. */
export function judgeReceiver({ opened, closed }: ReceiverAddresses, text: string): ReceiverVerdict {
  const address = parseIpAddress(text);
  if (address === undefined) return 'closed';
  if (findRange(opened, address) !== undefined) return 'opened';
  return findClosedReason(closed, address) === undefined ? 'public' : 'closed';
}
