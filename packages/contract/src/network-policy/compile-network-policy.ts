/** Compiles a stored policy for judging, once for each policy of a sandbox: 10,000 rules in milliseconds. */
import { AppError } from '../errors.ts';
import type { ClosedAddresses } from './closed-addresses.ts';
import { isIpv4 } from './ip-address.ts';
import { findCovering, type IpRange } from './ip-range.ts';
import { opensAll, readNetworkRule, type NetworkRule } from './network-rule.ts';
import { NetworkPolicy } from './network-schemas.ts';
import { buildRuleTable, type RuleTable } from './rule-table.ts';

/** `kernel`: the kernel forwards packets, and nothing is judged here. `proxy`: every connection is judged here. */
export type NetworkPath = 'kernel' | 'proxy';

export interface CompiledPolicy {
  default: 'allow' | 'deny';
  path: NetworkPath;
  /** Whether the name that a connection shows can change its verdict. */
  needsNames: boolean;
  /** Whether an allow rule could match the address of a name that no rule allows. Guests have IPv4 only. */
  allowsAddresses: boolean;
  allow: RuleTable;
  deny: RuleTable;
  closed: ClosedAddresses;
}

/**
 * Compiles a stored policy. Throws `internal` for any policy that `buildNetworkPolicy` could not have built: a rule
 * that is not understood must not be skipped.
 */
export function compileNetworkPolicy(stored: unknown, closed: ClosedAddresses): CompiledPolicy {
  const parsed = NetworkPolicy.safeParse(stored);
  if (!parsed.success)
    throw new AppError('internal', 'stored network policy is malformed', { cause: parsed.error });
  const policy = parsed.data;
  const allow = buildRuleTable(policy.allow.map(readStoredRule));
  const deny = buildRuleTable(policy.deny.map(readStoredRule));
  return {
    default: policy.default,
    path: findNetworkPath(policy),
    needsNames: deny.hasNames || (policy.default === 'deny' && allow.hasNames),
    allowsAddresses: allow.ranges.some((range) => isReachable(range, deny)),
    allow,
    deny,
    closed,
  };
}

/** Returns the path of a policy. Only a policy that refuses nothing takes the kernel's path. */
export function findNetworkPath(policy: Pick<NetworkPolicy, 'default' | 'deny'>): NetworkPath {
  return policy.default === 'allow' && policy.deny.length === 0 ? 'kernel' : 'proxy';
}

function isReachable(range: IpRange, deny: RuleTable): boolean {
  return isIpv4(range.first) && findCovering(deny.ranges, range) === undefined;
}

function readStoredRule(text: string): NetworkRule {
  const rule = readNetworkRule(text);
  if ('fault' in rule) throw malformed(text, rule.fault);
  if (rule.text !== text) throw malformed(text, `is not in its stored form ${rule.text}`);
  if (opensAll(rule) || rule.kind === 'registry') throw malformed(text, 'is not a rule of a stored policy');
  return rule;
}

function malformed(text: string, fault: string): AppError {
  return new AppError('internal', `stored network policy: ${JSON.stringify(text)} ${fault}`);
}
