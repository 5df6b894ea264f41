/**
 * The layout of the guest network inside `guestCidr`. All addresses are derived from the index of a slot, so that a
 * restarted runner needs no record: the first /30 holds the resolver, and slot n owns the (n+1)th /30 with the gateway
 * at its first host address and the guest at the second.
 */
import { AppError, PRIVATE_RANGES } from '@coppice/contract';
import { isIPv4 } from 'node:net';

/** Conntrack zones are 16 bits wide, and 0 is the default zone of the host. */
const MAX_SLOTS = 65_535;
const SLOT_ADDRESSES = 4;
/** Shorter prefixes leave no room for the range around them, longer ones hold fewer than three guests. */
const MIN_PREFIX = 8;
const MAX_PREFIX = 28;

export interface Cidr {
  text: string;
  /** First and last address as unsigned 32-bit numbers. */
  first: number;
  last: number;
  prefix: number;
}

export interface AddressPlan {
  guests: Cidr;
  resolver: string;
  /** Number of slots that fit. */
  capacity: number;
}

export interface SlotAddresses {
  index: number;
  gateway: string;
  guest: string;
  prefix: 30;
  /** Conntrack zone of the slot's own connections. */
  zone: number;
}

/** Parses `a.b.c.d/n`. Throws `invalid_request`; `field` names the setting in the error. */
export function parseCidr(field: string, text: string): Cidr {
  const [address = '', prefixText = ''] = text.split('/', 2);
  const prefix = Number(prefixText);
  if (
    !isIPv4(address) ||
    !/^\d{1,2}$/u.test(prefixText) ||
    prefix > 32 ||
    text !== `${address}/${prefixText}`
  ) {
    throw new AppError(
      'invalid_request',
      `${field}: "${text}" is not an IPv4 range; write it like 10.202.0.0/16`,
    );
  }
  const size = 2 ** (32 - prefix);
  const given = parseIpv4(address);
  const first = given - (given % size);
  if (first !== given) {
    throw new AppError(
      'invalid_request',
      `${field}: "${text}" has host bits set; write ${formatIpv4(first)}/${prefix}`,
    );
  }
  return { text, first, last: first + size - 1, prefix };
}

/** Parses `guestCidr` and plans its addresses. Throws `invalid_request` when it cannot carry guests. */
export function buildAddressPlan(guestCidr: string): AddressPlan {
  const guests = parseCidr('guestCidr', guestCidr);
  if (guests.prefix < MIN_PREFIX || guests.prefix > MAX_PREFIX) {
    const range = `/${MIN_PREFIX} to /${MAX_PREFIX}`;
    throw new AppError('invalid_request', `guestCidr: "${guestCidr}" must have a prefix of ${range}`);
  }
  if (!PRIVATE_RANGES.some((range) => contains(parseCidr('guestCidr', range), guests))) {
    throw new AppError(
      'invalid_request',
      `guestCidr: "${guestCidr}" is not private; use a part of 10.0.0.0/8`,
    );
  }
  const blocks = (guests.last - guests.first + 1) / SLOT_ADDRESSES;
  return { guests, resolver: formatIpv4(guests.first + 1), capacity: Math.min(blocks - 1, MAX_SLOTS) };
}

export function buildSlotAddresses(plan: AddressPlan, index: number): SlotAddresses {
  if (!Number.isInteger(index) || index < 0 || index >= plan.capacity) {
    throw new RangeError(`slot ${index} is outside ${plan.guests.text}`);
  }
  const block = plan.guests.first + SLOT_ADDRESSES * (index + 1);
  return { index, gateway: formatIpv4(block + 1), guest: formatIpv4(block + 2), prefix: 30, zone: index + 1 };
}

/**
 * Parses the ranges that an operator opens to guests. Throws `invalid_request` for all but parts of private ranges:
 * any other range is open already or can never be opened.
 */
export function parseOpenRanges(ranges: readonly string[]): Cidr[] {
  const closed = PRIVATE_RANGES.map((range) => parseCidr('openPrivateRanges', range));
  const parsed = ranges.map((range) => parseCidr('openPrivateRanges', range));
  for (const range of parsed) {
    if (closed.some((outer) => contains(outer, range))) continue;
    const remedy = `only parts of ${PRIVATE_RANGES.join(', ')} can be opened`;
    throw new AppError('invalid_request', `openPrivateRanges: "${range.text}" is not private; ${remedy}`);
  }
  return withoutContained(parsed);
}

export function overlaps(a: Cidr, b: Cidr): boolean {
  return a.first <= b.last && b.first <= a.last;
}

export function contains(outer: Cidr, inner: Cidr): boolean {
  return outer.first <= inner.first && inner.last <= outer.last;
}

export function parseIpv4(address: string): number {
  return address.split('.').reduce((value, part) => value * 256 + Number(part), 0);
}

export function formatIpv4(value: number): string {
  return [24, 16, 8, 0].map((shift) => (value >>> shift) & 0xff).join('.');
}

/**
 * Drops contained ranges: an nft interval set refuses overlaps, and of two CIDRs that overlap one contains the other.
 */
function withoutContained(ranges: readonly Cidr[]): Cidr[] {
  return ranges.filter((range, at) =>
    ranges.every(
      (other, otherAt) => at === otherAt || !contains(other, range) || (isSame(other, range) && at < otherAt),
    ),
  );
}

function isSame(a: Cidr, b: Cidr): boolean {
  return a.first === b.first && a.last === b.last;
}
