/**
 * One rule of a network policy, parsed from its text:
 *
 *     203.0.113.0/24  2001:db8::/32   addresses in a range
 *     203.0.113.7     2001:db8::7     one address
 *     api.example.com                 a host, as SNI and Host headers name it
 *     *.example.com                   all names below example.com, not example.com itself
 *     registry:npm                    the hosts of a package registry, as set-up found them
 *     0.0.0.0/0  ::/0  *              everything
 *
 * Every rule has one canonical spelling (`text`), which parses to the same rule.
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

/** Whether a catch-all in allow opens every address of a guest. `::/0` does not, because guests have only IPv4. */
export function opensAll(rule: NetworkRule): boolean {
  return isCatchAll(rule) && rule.text !== '::/0';
}

/** Whether a rule is a catch-all (`*`, `0.0.0.0/0` or `::/0`): it covers whatever no other rule matches. */
export function isCatchAll(rule: NetworkRule): boolean {
  return rule.kind === 'all' || (rule.kind === 'range' && rule.range.prefix === 0);
}

function findFormFault(text: string): string | undefined {
  if (text === '') return 'is empty; remove it';
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
    return { fault: 'has a path; a rule covers a whole host, such as api.example.com' };
  }
  const range = readIpRange(address, prefix);
  return 'fault' in range ? range : { kind: 'range', text: range.text, range };
}

function readIpv6Rule(text: string): NetworkRule | RuleFault {
  if (/^[^:]*:\d*$/u.test(text)) {
    return { fault: `has a port; a rule covers all ports, write ${text.slice(0, text.indexOf(':'))}` };
  }
  const range = readIpRange(text, undefined);
  if (!('fault' in range)) return { kind: 'range', text: range.text, range };
  return LIKE_ADDRESS.test(text) ? range : { fault: 'is not an IPv6 address, and names have no colon' };
}

function readNameRule(text: string): NetworkRule | RuleFault {
  const isWildcard = text.startsWith('*.');
  const rest = isWildcard ? text.slice(2) : text;
  if (rest.includes('*'))
    return { fault: 'has a * elsewhere than at the start; write it like *.example.com' };
  const host = readHostName(rest);
  if ('fault' in host) return host;
  const { name } = host;
  return isWildcard
    ? { kind: 'subdomains', text: `*.${name}`, parent: name }
    : { kind: 'name', text: name, name };
}
