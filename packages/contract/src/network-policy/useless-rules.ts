/** Rules that change nothing. They do no harm, but their author meant something by them. */
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
  return cover === undefined ? [] : [`${showRule(place, rule.text)} never applies, as ${cover} is denied`];
}

/** `::/0` in deny does not come to here: it says what holds for the rest. */
function describeIpv6({ place, rule }: PlacedRule): string[] {
  if (rule.kind !== 'range' || isIpv4(rule.range.first)) return [];
  return [`${showRule(place, rule.text)} matches nothing, as sandboxes have no IPv6`];
}

/** Only hosts of registries come to here closed: what a request writes itself is refused. */
function describeClosed({ place, rule }: PlacedRule, opened: RuleContext['opened']): string[] {
  const fault = rule.kind === 'range' ? findClosedFault(opened, rule.range) : undefined;
  return fault === undefined ? [] : [`${showRule(place, rule.text)} ${fault}`];
}
