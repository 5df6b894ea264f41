/** Rules that have no effect. They do no harm, but their author intended an effect. */
import { findClosedFault } from './closed-addresses.ts';
import { isIpv4 } from './ip-address.ts';
import type { PlacedRule, ReadRules } from './read-rules.ts';
import type { RuleContext } from './rule-context.ts';
import { showRule } from './rule-faults.ts';
import { buildRuleTable, findCoveringRule, type RuleTable } from './rule-table.ts';

const MAX_WARNINGS = 20;

export function listUselessRules({ allow, deny }: ReadRules, { opened }: RuleContext): string[] {
  const denied = buildRuleTable(deny.map(({ rule }) => rule));
  const found = [
    ...listRepeated(allow),
    ...listRepeated(deny),
    ...[...allow, ...deny].flatMap(describeIpv6),
    ...allow.flatMap((placed) => describeDenied(placed, denied)),
    ...allow.flatMap((placed) => describeClosed(placed, opened)),
  ];
  const rest = found.length - MAX_WARNINGS;
  return rest > 0 ? [...found.slice(0, MAX_WARNINGS), `and ${rest} more`] : found;
}

function listRepeated(rules: readonly PlacedRule[]): string[] {
  const places = new Map<string, string>();
  return rules.flatMap(({ place, rule, isOfRegistry }) => {
    const before = places.get(rule.text);
    places.set(rule.text, before ?? place);
    return before === undefined || isOfRegistry ? [] : [`${showRule(place, rule.text)} repeats ${before}`];
  });
}

function describeDenied({ place, rule }: PlacedRule, denied: RuleTable): string[] {
  const cover = findCoveringRule(denied, rule);
  return cover === undefined
    ? []
    : [`${showRule(place, rule.text)} never applies, because ${cover} is denied`];
}

/** Reports IPv6 rules. `::/0` in deny never gets here: it sets the default. */
function describeIpv6({ place, rule }: PlacedRule): string[] {
  if (rule.kind !== 'range' || isIpv4(rule.range.first)) return [];
  return [`${showRule(place, rule.text)} matches nothing, because sandboxes have no IPv6`];
}

/** Reports closed addresses. Only hosts of registries get here: closed addresses in a request are refused earlier. */
function describeClosed({ place, rule }: PlacedRule, opened: RuleContext['opened']): string[] {
  const fault = rule.kind === 'range' ? findClosedFault(opened, rule.range) : undefined;
  return fault === undefined ? [] : [`${showRule(place, rule.text)} ${fault}`];
}
