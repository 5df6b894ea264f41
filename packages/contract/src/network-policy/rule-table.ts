/** The rules of one list, indexed so that a match takes the same time for ten rules as for ten thousand. */
import { buildRangeTable, findCovering, findRange, type IpRange, type RangeTable } from './ip-range.ts';
import type { NetworkRule } from './network-rule.ts';

export interface RuleTable {
  names: ReadonlySet<string>;
  /** For example `example.com` for the rule `*.example.com`. */
  parents: ReadonlySet<string>;
  /** Length in characters. With it a name of many labels costs no more than a name that a rule could match. */
  longestParent: number;
  ranges: RangeTable;
  hasNames: boolean;
}

export function buildRuleTable(rules: readonly NetworkRule[]): RuleTable {
  const names = new Set<string>();
  const parents = new Set<string>();
  const ranges: IpRange[] = [];
  for (const rule of rules) {
    if (rule.kind === 'name') names.add(rule.name);
    else if (rule.kind === 'subdomains') parents.add(rule.parent);
    else if (rule.kind === 'range') ranges.push(rule.range);
    else throw new TypeError(`${rule.text} cannot be in a rule table`);
  }
  let longestParent = 0;
  for (const parent of parents) longestParent = Math.max(longestParent, parent.length);
  const hasNames = names.size + parents.size > 0;
  return { names, parents, longestParent, ranges: buildRangeTable(ranges), hasNames };
}

/** Returns the rule that matches a folded name: the name itself, else the closest domain above it. */
export function findNameRule(table: RuleTable, name: string): string | undefined {
  return table.names.has(name) ? name : findDomainRule(table, name);
}

function findDomainRule({ parents, longestParent }: RuleTable, name: string): string | undefined {
  const from = Math.max(0, name.length - longestParent - 1);
  for (let dot = name.indexOf('.', from); dot !== -1; dot = name.indexOf('.', dot + 1)) {
    const parent = name.slice(dot + 1);
    if (parents.has(parent)) return `*.${parent}`;
  }
  return undefined;
}

/** Returns the widest rule that matches an address. */
export function findAddressRule({ ranges }: RuleTable, address: bigint): string | undefined {
  return findRange(ranges, address)?.text;
}

/** Returns a rule of the table that matches everything that `rule` matches. */
export function findCoveringRule(table: RuleTable, rule: NetworkRule): string | undefined {
  if (rule.kind === 'range') return findCovering(table.ranges, rule.range)?.text;
  if (rule.kind === 'name') return findNameRule(table, rule.name);
  if (rule.kind !== 'subdomains') return undefined;
  return table.parents.has(rule.parent) ? rule.text : findDomainRule(table, rule.parent);
}
