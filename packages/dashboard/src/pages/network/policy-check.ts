/**
 * Checks and tries network policies in the browser, with the code of the service itself. It brings a schema library: load
 * it with `load-policy-check.ts`.
 *
 * The browser does not know three settings of the service: the hosts of package registries, the private ranges that the
 * operator has opened, and the host's own addresses. Results say where they depend on one.
 */
import { PutNetworkRequest } from '../../../../contract/src/egress/egress.ts';
import { AppError } from '../../../../contract/src/errors.ts';
import { invalidRequest } from '../../../../contract/src/invalid-request.ts';
import { buildNetworkPolicy } from '../../../../contract/src/network-policy/build-network-policy.ts';
import {
  compileClosedAddresses,
  PRIVATE_RANGES,
} from '../../../../contract/src/network-policy/closed-addresses.ts';
import {
  compileNetworkPolicy,
  type CompiledPolicy,
} from '../../../../contract/src/network-policy/compile-network-policy.ts';
import { isIpv4, parseIpAddress } from '../../../../contract/src/network-policy/ip-address.ts';
import {
  buildRangeTable,
  findCovering,
  parseIpRange,
} from '../../../../contract/src/network-policy/ip-range.ts';
import { readNetworkRule } from '../../../../contract/src/network-policy/network-rule.ts';
import { buildRuleContext } from '../../../../contract/src/network-policy/rule-context.ts';
import type { Rules } from './policy-draft.ts';

export interface CheckedPolicy {
  rules: Rules;
  /** Why the service would refuse the rules, in its words. */
  fault: string | undefined;
  /** Rules without effect. */
  warnings: readonly string[];
  /** Undefined if there is a fault. */
  compiled: CompiledPolicy | undefined;
  /** Rules of `registry:…`, whose hosts only the service knows. */
  registries: { allow: readonly string[]; deny: readonly string[] };
}

/**
 * Checks rules as the service does. `trusted` are rules that it has accepted: private ranges among them are ranges that
 * the operator has opened.
 */
export function checkPolicy(rules: Rules, trusted: readonly string[] = []): CheckedPolicy {
  const registries = { allow: rules.allow.filter(isRegistry), deny: rules.deny.filter(isRegistry) };
  const opened = findOpened(trusted);
  try {
    const { network } = parse(rules);
    const context = buildRuleContext({ openPrivateRanges: opened, registries: {} });
    // Which registries the server knows is not known here: it says so when the policy is sent.
    const options = { field: 'network', context, skipsMissingRegistries: true };
    const { policy, warnings } = buildNetworkPolicy(network, options);
    const closed = compileClosedAddresses({ openPrivateRanges: opened, own: [] });
    const compiled = compileNetworkPolicy(policy, closed);
    return { rules, fault: undefined, warnings, compiled, registries };
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return { rules, fault: error.message, warnings: [], compiled: undefined, registries };
  }
}

function parse({ allow, deny }: Rules) {
  const input = { network: { allow: [...allow], deny: [...deny] } };
  const parsed = PutNetworkRequest.safeParse(input);
  if (!parsed.success) throw invalidRequest(parsed.error, { where: 'body', input });
  const { network = { allow: [], deny: [] } } = parsed.data;
  return { network };
}

function isRegistry(text: string): boolean {
  const rule = readNetworkRule(text);
  return !('fault' in rule) && rule.kind === 'registry';
}

function findOpened(trusted: readonly string[]): string[] {
  const closed = buildRangeTable(PRIVATE_RANGES.map((range) => parseIpRange('range', range)));
  return trusted.filter((text) => {
    const rule = readNetworkRule(text);
    return !('fault' in rule) && rule.kind === 'range' && findCovering(closed, rule.range) !== undefined;
  });
}

/** Returns the place of a rule, as it is written in the policy, from its canonical text: `allow[2]`. */
export function findWritten(
  list: readonly string[],
  canonical: string,
): { index: number; text: string } | undefined {
  const index = list.findIndex((text) => {
    const rule = readNetworkRule(text);
    return !('fault' in rule) && rule.text === canonical;
  });
  const text = list[index];
  return text === undefined ? undefined : { index, text };
}

/** Whether a text is an IP address; `6` for IPv6, which sandboxes do not have. */
export function findAddressKind(text: string): 4 | 6 | undefined {
  const address = parseIpAddress(text);
  if (address === undefined) return undefined;
  return isIpv4(address) ? 4 : 6;
}
