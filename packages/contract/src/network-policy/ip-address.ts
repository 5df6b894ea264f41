/**
 * IP addresses as numbers in one number space: IPv6 from 0, and IPv4 above all of IPv6. So one sorted table serves
 * both, and no IPv6 range contains an IPv4 address.
 */

const IPV4_BASE = 1n << 128n;
export const MAX_IP = IPV4_BASE + 0xffff_ffffn;

/** Four decimal numbers. Octal, hexadecimal and short forms, which some programs accept, are refused. */
const IPV4 = /^(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})$/u;
const IPV6 = /^[0-9a-f.]*:[0-9a-f:.]*$/iu;
const MAX_IPV6_LENGTH = 45;
const GROUPS = 8;
const MAX_BYTE = 255;

export function isIpv4(address: bigint): boolean {
  return address >= IPV4_BASE;
}

/**
 * Parses an address as the kernel and name servers write it; returns undefined for other text. `::ffff:203.0.113.7` is
 * 203.0.113.7, because it reaches that address.
 */
export function parseIpAddress(text: string): bigint | undefined {
  const address = parseIpv4(text) ?? parseIpv6(text);
  if (address === undefined || isIpv4(address)) return address;
  return findMappedIpv4(address) ?? address;
}

function parseIpv4(text: string): bigint | undefined {
  const parts = IPV4.exec(text);
  if (parts === null) return undefined;
  let value = 0;
  for (let at = 1; at < parts.length; at += 1) {
    const part = Number(parts[at]);
    if (part > MAX_BYTE) return undefined;
    value = value * (MAX_BYTE + 1) + part;
  }
  return IPV4_BASE + BigInt(value);
}

/** Parses an IPv6 address as it is written, not as the IPv4 address that it may stand for. Refuses zones (`%eth0`). */
export function parseIpv6(text: string): bigint | undefined {
  return readIpv6(text)?.address;
}

export interface IpLiteral {
  address: bigint;
  /** The canonical spelling. */
  text: string;
}

/** Parses an address as it is written, with its canonical spelling: formatting the number again takes longer. */
export function readIpLiteral(text: string): IpLiteral | undefined {
  const ipv4 = parseIpv4(text);
  return ipv4 === undefined ? readIpv6(text) : { address: ipv4, text };
}

function readIpv6(text: string): IpLiteral | undefined {
  if (text.length > MAX_IPV6_LENGTH || !IPV6.test(text)) return undefined;
  const canonical = canonicalIpv6(text);
  if (canonical === undefined) return undefined;
  const [head = '', tail] = canonical.split('::');
  const first = splitGroups(head);
  const last = splitGroups(tail ?? '');
  const zeros = '0000'.repeat(GROUPS - first.length - last.length);
  return { address: BigInt(`0x${joinGroups(first)}${zeros}${joinGroups(last)}`), text: canonical };
}

/** Returns the IPv4 address for which an IPv4-mapped address (`::ffff:0:0/96`) stands, else undefined. */
export function findMappedIpv4(address: bigint): bigint | undefined {
  return !isIpv4(address) && address >> 32n === 0xffffn ? IPV4_BASE + (address & 0xffff_ffffn) : undefined;
}

export function formatIpAddress(address: bigint): string {
  if (isIpv4(address)) {
    const value = Number(address - IPV4_BASE);
    return [24, 16, 8, 0].map((shift) => (value >>> shift) & MAX_BYTE).join('.');
  }
  const digits = address.toString(16).padStart(GROUPS * 4, '0');
  const text = digits.replaceAll(/.{4}(?!$)/gu, '$&:');
  return canonicalIpv6(text) ?? text;
}

function splitGroups(text: string): string[] {
  return text === '' ? [] : text.split(':');
}

function joinGroups(groups: readonly string[]): string {
  let digits = '';
  for (const group of groups) digits += group.padStart(4, '0');
  return digits;
}

/** Uses the URL parser, which every platform has: it refuses invalid addresses and shortens valid ones by RFC 5952. */
function canonicalIpv6(text: string): string | undefined {
  try {
    return new URL(`http://[${text}]`).hostname.slice(1, -1);
  } catch {
    return undefined;
  }
}
