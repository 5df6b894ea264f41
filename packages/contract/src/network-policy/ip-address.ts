/**
 * IP addresses as numbers, IPv4 and IPv6 on one line: IPv6 from 0, IPv4 above all of it. So one sorted table serves
 * both, and no IPv6 range reaches an IPv4 address.
 */

const IPV4_BASE = 1n << 128n;
export const MAX_IP = IPV4_BASE + 0xffff_ffffn;

/** Four decimal numbers. What some programs take besides, octal, hexadecimal and short forms, is none here. */
const IPV4 = /^(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})$/u;
const IPV6 = /^[0-9a-f.]*:[0-9a-f:.]*$/iu;
const MAX_IPV6_LENGTH = 45;
const GROUPS = 8;
const MAX_BYTE = 255;

export function isIpv4(address: bigint): boolean {
  return address >= IPV4_BASE;
}

/** Reads an address as the kernel and name servers tell it. `::ffff:203.0.113.7` is 203.0.113.7, which it reaches. */
export function parseIpAddress(text: string): bigint | undefined {
  const address = parseIpv4(text) ?? parseIpv6(text);
  if (address === undefined || isIpv4(address)) return address;
  return findMappedIpv4(address) ?? address;
}

export function parseIpv4(text: string): bigint | undefined {
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

/** The address as it is written, not the IPv4 address that it may stand for. Zones (`%eth0`) are refused. */
export function parseIpv6(text: string): bigint | undefined {
  return readIpv6(text)?.address;
}

export interface IpLiteral {
  address: bigint;
  /** Its one spelling. */
  text: string;
}

/** The address as it is written, with its spelling: to make that anew from the address takes longer. */
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

/** The IPv4 address that an IPv4-mapped one (`::ffff:0:0/96`) stands for. */
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

/** By the URL parser that every platform has: it refuses what is no address, and shortens as RFC 5952 says. */
function canonicalIpv6(text: string): string | undefined {
  try {
    return new URL(`http://[${text}]`).hostname.slice(1, -1);
  } catch {
    return undefined;
  }
}
