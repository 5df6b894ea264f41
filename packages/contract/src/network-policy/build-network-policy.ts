/**
 * Builds the stored policy from the rules of a request or a profile.
 *
 * The default is deny if there is an allow rule or a catch-all in deny, else allow. A catch-all in allow makes it allow
 * again. So `{allow: […]}` is an allow list, `{deny: […]}` is a deny list, and `{}` allows everything.
 */
import { readRules, type PlacedRule, type ReadOptions, type ReadRules } from './read-rules.ts';
import { isCatchAll, opensAll } from './network-rule.ts';
import type { NetworkPolicy, NetworkRules } from './network-schemas.ts';
import { listUselessRules } from './useless-rules.ts';

export interface BuiltPolicy {
  policy: NetworkPolicy;
  /** Rules that have no effect, for the author. The policy is valid all the same. */
  warnings: string[];
}

export interface BuildOptions extends ReadOptions {
  profile?: string;
}

/** Policy that allows every connection; the kernel forwards them. */
export const UNRESTRICTED_POLICY: NetworkPolicy = {
  version: 1,
  profile: null,
  default: 'allow',
  allow: [],
  deny: [],
};

/** Builds a policy. Throws `invalid_request` with the faulty rule and its correction. */
export function buildNetworkPolicy(rules: NetworkRules, options: BuildOptions): BuiltPolicy {
  const read = readRules(rules, options);
  const specific = {
    allow: read.allow.filter(({ rule }) => !opensAll(rule)),
    deny: read.deny.filter(({ rule }) => !isCatchAll(rule)),
  };
  const policy: NetworkPolicy = {
    version: 1,
    profile: options.profile ?? null,
    default: findDefault(rules, read),
    allow: listTexts(specific.allow),
    deny: listTexts(specific.deny),
  };
  return { policy, warnings: listUselessRules(specific, options.context) };
}

/** Returns rules from which `buildNetworkPolicy` builds this policy again, except for its profile. */
export function listRules(policy: NetworkPolicy): NetworkRules {
  const { allow, deny } = policy;
  if (policy.default === 'allow') return { allow: allow.length > 0 ? ['0.0.0.0/0', ...allow] : [], deny };
  return { allow, deny: allow.length > 0 ? deny : ['0.0.0.0/0', ...deny] };
}

/** Derives the default from the rules as written: a registry without hosts is also an allow rule. */
function findDefault(rules: NetworkRules, read: ReadRules): 'allow' | 'deny' {
  const opens = read.allow.some(({ rule }) => opensAll(rule));
  if (opens) return 'allow';
  return rules.allow.length > 0 || read.deny.some(({ rule }) => isCatchAll(rule)) ? 'deny' : 'allow';
}

function listTexts(rules: readonly PlacedRule[]): string[] {
  return [...new Set(rules.map(({ rule }) => rule.text))];
}
