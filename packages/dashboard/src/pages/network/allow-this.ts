/** Makes the change of a policy that allows a refused connection. */
import { BLOCK_REASONS, type BlockReason } from '../../../../contract/src/network-policy/block-reason.ts';
import { checkPolicy, findAddressKind, type CheckedPolicy } from './policy-check.ts';
import type { Rules } from './policy-draft.ts';
import { testDestination, type TestResult } from './test-destination.ts';
import type { Target } from './read-target.ts';

/** A refused connection, as an event or the audit log has it. */
interface Refusal {
  domain?: string | undefined;
  ip?: string | undefined;
  reason: string;
}

export interface AllowChange {
  rules: Rules;
  /** The rule to add; undefined if removing is enough. */
  added: string | undefined;
  /** Deny rules to remove, because each matches. */
  removed: readonly string[];
}

/** Reasons that no rule changes. */
const FINAL: Readonly<Partial<Record<BlockReason, string>>> = {
  host_address: 'The address belongs to the host or to another sandbox. No policy opens it.',
  reserved_address: 'The address is loopback, link-local, multicast or reserved. No policy opens it.',
  private_address:
    'The address is in a private range. The operator opens such ranges with COPPICE_OPEN_PRIVATE_RANGES; then a rule can allow it.',
  too_many_connections: 'The limit of connections was reached. It does not depend on the policy.',
  protocol_not_allowed: BLOCK_REASONS.protocol_not_allowed,
  source_not_own: 'The sandbox sent a packet with an address that is not its own. No policy allows that.',
};
/** More deny rules than can match one name and one address, if none repeats. */
const MAX_STEPS = 300;

/** Returns why no rule can allow a refused connection; undefined if one may. */
export function findFinalReason({ domain, ip, reason }: Refusal): string | undefined {
  const known = FINAL[reason as BlockReason];
  if (known !== undefined) return known;
  return domain === undefined && ip === undefined ? 'The refusal names no destination.' : undefined;
}

/** Returns the rules that may be added for a refusal, the narrowest first. */
export function listCandidates({ domain, ip, reason }: Refusal): string[] {
  // Without a readable name, only the address can decide.
  const isByAddress = reason.startsWith('name_') || domain === undefined;
  if (isByAddress) return ip === undefined ? [] : [ip];
  const parts = domain.replace(/\.$/u, '').split('.');
  const parent = parts.slice(1).join('.');
  return [domain, ...(parts.length > 2 ? [`*.${parent}`] : []), ...(ip === undefined ? [] : [ip])];
}

/** Whether a policy would allow now what was refused before. */
export function isAllowedNow(checked: CheckedPolicy, refusal: Refusal): boolean {
  const [rule] = listCandidates(refusal);
  if (rule === undefined || checked.compiled === undefined || findFinalReason(refusal) !== undefined)
    return false;
  return testDestination(checked, toTarget(refusal, rule)).verdict === 'allow';
}

/** Returns the change that allows a connection by `rule`, or why there is none. `trusted` as for `checkPolicy`. */
export function allowThis(
  before: Rules,
  refusal: Refusal,
  { rule, trusted = [] }: { rule: string; trusted?: readonly string[] },
): AllowChange | { fault: string } {
  const final = findFinalReason(refusal);
  if (final !== undefined) return { fault: final };
  const target = toTarget(refusal, rule);
  let rules: Rules = before;
  let added: string | undefined;
  const removed: string[] = [];
  for (let step = 0; step < MAX_STEPS; step += 1) {
    const checked = checkPolicy(rules, trusted);
    if (checked.fault !== undefined) return { fault: checked.fault };
    const result = testDestination(checked, target);
    if (result.verdict === 'allow') return { rules, added, removed };
    const denied = findDenied(result);
    if (denied !== undefined) {
      removed.push(denied);
      rules = { allow: rules.allow, deny: rules.deny.filter((text) => text !== denied) };
    } else if (added === undefined) {
      added = rule;
      rules = { allow: [...rules.allow, rule], deny: rules.deny.filter((text) => text !== rule) };
    } else return { fault: result.reason };
  }
  return { fault: 'Too many rules match. Edit the policy by hand.' };
}

/** The connection as it is judged: by its name, or by its address if that is what the rule names. */
function toTarget({ domain, ip }: Refusal, rule: string): Target {
  if (findAddressKind(rule) !== undefined) return { address: ip, protocol: 'other' };
  return { name: domain, address: ip, protocol: 'tls' };
}

function findDenied({ rule }: TestResult): string | undefined {
  return rule?.list === 'deny' ? rule.text : undefined;
}
