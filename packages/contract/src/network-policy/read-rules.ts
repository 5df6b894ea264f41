/** Parses the two lists of a policy. Each rule keeps its place, which error messages name. */
import { findClosedFault } from './closed-addresses.ts';
import { isCatchAll, readNetworkRule, type NetworkRule } from './network-rule.ts';
import { MAX_RULES, MAX_RULES_LENGTH, type NetworkRules } from './network-schemas.ts';
import type { RuleContext } from './rule-context.ts';
import { RuleFaults, showRule } from './rule-faults.ts';

export interface PlacedRule {
  /** `network.allow[3]`; for a host of a registry, the place of the registry rule. */
  place: string;
  rule: NetworkRule;
  /** Whether the rule is a host of a registry, which the author of the policy did not choose. */
  isOfRegistry: boolean;
}

export interface ReadRules {
  allow: PlacedRule[];
  deny: PlacedRule[];
}

export interface ReadOptions {
  /** Name of the lists in messages: `network`. */
  field: string;
  context: RuleContext;
  /** Ignores registries without hosts: built-in profiles name registries that a server need not have. */
  skipsMissingRegistries?: boolean;
}

/** Parses rules and expands registries. Throws `invalid_request` with the first faults. */
export function readRules(rules: NetworkRules, options: ReadOptions): ReadRules {
  const faults = new RuleFaults();
  assertLimits(rules, options.field, faults);
  faults.throwIfAny();
  const allow = readList(rules.allow, `${options.field}.allow`, faults);
  const deny = readList(rules.deny, `${options.field}.deny`, faults);
  refuseClosed(allow, options.context, faults);
  refuseContradictions(allow, deny, faults);
  const expanded = {
    allow: expandRegistries(allow, options, faults),
    deny: expandRegistries(deny, options, faults),
  };
  const count = expanded.allow.length + expanded.deny.length;
  if (count > MAX_RULES)
    faults.add(`${options.field}: must have at most ${MAX_RULES} rules, including those of registries`);
  faults.throwIfAny();
  return expanded;
}

function assertLimits({ allow, deny }: NetworkRules, field: string, faults: RuleFaults): void {
  const count = allow.length + deny.length;
  if (count > MAX_RULES) faults.add(`${field}: must have at most ${MAX_RULES} rules, it has ${count}`);
  let length = 0;
  for (const text of allow) length += text.length;
  for (const text of deny) length += text.length;
  if (length > MAX_RULES_LENGTH)
    faults.add(`${field}: must have at most ${MAX_RULES_LENGTH} characters of rules`);
}

function readList(texts: readonly string[], field: string, faults: RuleFaults): PlacedRule[] {
  const rules: PlacedRule[] = [];
  for (const [index, text] of texts.entries()) {
    const place = `${field}[${index}]`;
    const rule = readNetworkRule(text);
    if ('fault' in rule) faults.add(`${showRule(place, text)} ${rule.fault}`);
    else rules.push({ place, rule, isOfRegistry: false });
  }
  return rules;
}

function refuseClosed(allow: readonly PlacedRule[], { opened }: RuleContext, faults: RuleFaults): void {
  for (const { place, rule } of allow) {
    const fault = rule.kind === 'range' ? findClosedFault(opened, rule.range) : undefined;
    if (fault !== undefined) faults.add(`${showRule(place, rule.text)} ${fault}`);
  }
}

/**
 * Refuses the same rule in both lists, which is a mistake. Rules that merely overlap are fine: deny takes precedence.
 */
function refuseContradictions(
  allow: readonly PlacedRule[],
  deny: readonly PlacedRule[],
  faults: RuleFaults,
): void {
  const denied = new Map(deny.map(({ place, rule }) => [rule.text, place]));
  const deniedAll = deny.find(({ rule }) => isCatchAll(rule));
  for (const { place, rule } of allow) {
    const same = isCatchAll(rule) ? deniedAll?.place : denied.get(rule.text);
    if (same !== undefined) {
      faults.add(`${showRule(place, rule.text)} contradicts ${same}; remove one of them`);
    }
  }
}

function expandRegistries(
  rules: readonly PlacedRule[],
  { context, skipsMissingRegistries = false }: ReadOptions,
  faults: RuleFaults,
): PlacedRule[] {
  const expanded = new Set<string>();
  return rules.flatMap((placed) => {
    const { place, rule } = placed;
    if (rule.kind !== 'registry') return [placed];
    if (expanded.has(rule.registry)) return [];
    expanded.add(rule.registry);
    const hosts = context.registries.get(rule.registry) ?? [];
    if (hosts.length === 0 && !skipsMissingRegistries) faults.add(describeMissing(place, rule.text, context));
    return hosts.map((host) => ({ place, rule: host, isOfRegistry: true }));
  });
}

function describeMissing(place: string, text: string, { registries }: RuleContext): string {
  const known = [...registries].flatMap(([name, hosts]) => (hosts.length > 0 ? [`registry:${name}`] : []));
  const remedy = known.length > 0 ? `it knows ${known.join(', ')}` : 'write the hosts of the registry';
  return `${showRule(place, text)} is not known to this server; ${remedy}`;
}
