/**
 * One rule of a network policy, from its text:
 *
 *     203.0.113.0/24  2001:db8::/32   addresses in a range
 *     203.0.113.7     2001:db8::7     one address
 *     api.example.com                 a host, as SNI and Host name it
 *     *.example.com                   all below example.com, not example.com
 *     registry:npm                    the hosts of a package registry, as set-up found them
 *     0.0.0.0/0  ::/0  *              everything
 *
 * Every rule has one spelling (`text`), which reads as the same rule again.
 */
import { readHostName } from './host-name.ts';
import { readIpRange, type IpRange } from './ip-range.ts';
import type { RuleFault } from './rule-fault.ts';

export type NetworkRule =
  | { kind: 'all'; text: '*' }
  | { kind: 'range'; text: string; range: IpRange }
  | { kind: 'name'; text: string; name: string }
  | { kind: 'subdomains'; text: string; parent: string }
  | { kind: 'registry'; text: string; registry: string };

export const MAX_RULE_LENGTH = 512;
export const REGISTRY_RULE = /^registry:(?<registry>[a-z][a-z0-9-]{0,31})$/u;
const LIKE_ADDRESS = /^[0-9a-f:.]+$/iu;
const BLANK = /[\s\p{Cc}]/u;

export function readNetworkRule(text: string): NetworkRule | RuleFault {
  const fault = findFormFault(text);
  if (fault !== undefined) return { fault };
  if (text === '*') return { kind: 'all', text };
  if (/^registry:/iu.test(text)) return readRegistryRule(text.toLowerCase());
  const slash = text.indexOf('/');
  if (slash !== -1) return readRangeRule(text.slice(0, slash), text.slice(slash + 1));
  if (text.includes(':')) return readIpv6Rule(text);
  const range = readIpRange(text, undefined);
  return 'fault' in range ? readNameRule(text) : { kind: 'range', text: range.text, range };
}

/** Of a catch-all in allow, whether it opens what a guest can address: that has IPv4 only, and `::/0` says IPv6. */
export function opensAll(rule: NetworkRule): boolean {
  return isCatchAll(rule) && rule.text !== '::/0';
}

/** `*`, `0.0.0.0/0` and `::/0` are about everything: they say what holds for what no other rule is about. */
export function isCatchAll(rule: NetworkRule): boolean {
  return rule.kind === 'all' || (rule.kind === 'range' && rule.range.prefix === 0);
}

function findFormFault(text: string): string | undefined {
  if (text === '') return 'is empty; leave it out';
  if (text.length > MAX_RULE_LENGTH) return `is longer than ${MAX_RULE_LENGTH} characters`;
  if (BLANK.test(text)) return 'has a space or a control character in it; one rule is one host or range';
  if (text.includes('@')) return 'has an @ in it; write only the host, no user and no password';
  if (text.includes('://')) return 'is a URL; write only the host, such as api.example.com';
  if (/[[\]]/u.test(text)) return 'has brackets; write an IPv6 address without them, and no port';
  return undefined;
}

function readRegistryRule(text: string): NetworkRule | RuleFault {
  const registry = REGISTRY_RULE.exec(text)?.groups?.['registry'];
  if (registry === undefined) return { fault: 'names no registry; write it like registry:npm' };
  return { kind: 'registry', text, registry };
}

function readRangeRule(address: string, prefix: string): NetworkRule | RuleFault {
  if (!LIKE_ADDRESS.test(address) || !/[.:]/u.test(address)) {
    return { fault: 'has a path; rules are about whole hosts, such as api.example.com' };
  }
  const range = readIpRange(address, prefix);
  return 'fault' in range ? range : { kind: 'range', text: range.text, range };
}

function readIpv6Rule(text: string): NetworkRule | RuleFault {
  if (/^[^:]*:\d*$/u.test(text)) {
    return { fault: `has a port; a rule holds for all ports, write ${text.slice(0, text.indexOf(':'))}` };
  }
  const range = readIpRange(text, undefined);
  if (!('fault' in range)) return { kind: 'range', text: range.text, range };
  return LIKE_ADDRESS.test(text) ? range : { fault: 'is no IPv6 address, and names have no colon' };
}

function readNameRule(text: string): NetworkRule | RuleFault {
  const isWildcard = text.startsWith('*.');
  const rest = isWildcard ? text.slice(2) : text;
  if (rest.includes('*')) return { fault: 'has a * elsewhere than in front, as in *.example.com' };
  const host = readHostName(rest);
  if ('fault' in host) return host;
  const { name } = host;
  return isWildcard
    ? { kind: 'subdomains', text: `*.${name}`, parent: name }
    : { kind: 'name', text: name, name };
}
