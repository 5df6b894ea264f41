/**
 * From the rules of a request or a profile to the policy that is stored.
 *
 * The default is deny if there is an allow rule or a catch-all in deny, else allow. A catch-all in allow makes it allow
 * again. So `{allow: […]}` is an allow list, `{deny: […]}` a deny list, and `{}` lets everything pass.
 */
import { readRules, type PlacedRule, type ReadOptions, type ReadRules } from './read-rules.ts';
import { isCatchAll, opensAll } from './network-rule.ts';
import type { NetworkPolicy, NetworkRules } from './network-schemas.ts';
import { listUselessRules } from './useless-rules.ts';

export interface BuiltPolicy {
  policy: NetworkPolicy;
  /** Rules that change nothing, for the author; the policy is good as it is. */
  warnings: string[];
}

export interface BuildOptions extends ReadOptions {
  profile?: string;
}

/** Every connection passes, by the kernel's path. */
export const UNRESTRICTED_POLICY: NetworkPolicy = {
  version: 1,
  profile: null,
  default: 'allow',
  allow: [],
  deny: [],
};

/** Throws `invalid_request` that names the rule and what to write instead. */
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

/** The rules that `buildNetworkPolicy` makes this policy from, but for its profile. */
export function listRules(policy: NetworkPolicy): NetworkRules {
  const { allow, deny } = policy;
  if (policy.default === 'allow') return { allow: allow.length > 0 ? ['0.0.0.0/0', ...allow] : [], deny };
  return { allow, deny: allow.length > 0 ? deny : ['0.0.0.0/0', ...deny] };
}

/** By the rules as written: a registry without hosts is an allow rule too. */
function findDefault(rules: NetworkRules, read: ReadRules): 'allow' | 'deny' {
  const opens = read.allow.some(({ rule }) => opensAll(rule));
  if (opens) return 'allow';
  return rules.allow.length > 0 || read.deny.some(({ rule }) => isCatchAll(rule)) ? 'deny' : 'allow';
}

function listTexts(rules: readonly PlacedRule[]): string[] {
  return [...new Set(rules.map(({ rule }) => rule.text))];
}
