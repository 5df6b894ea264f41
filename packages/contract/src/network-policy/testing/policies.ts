/** Shortcuts to a compiled policy. */
import { buildNetworkPolicy } from '../build-network-policy.ts';
import { compileClosedAddresses, type ClosedAddresses } from '../closed-addresses.ts';
import { compileNetworkPolicy, type CompiledPolicy } from '../compile-network-policy.ts';
import type { NetworkRules } from '../network-schemas.ts';
import { buildRuleContext, type RuleContext, type RuleSettings } from '../rule-context.ts';

export const CLOSED: ClosedAddresses = compileClosedAddresses({
  openPrivateRanges: ['10.1.0.0/16'],
  own: ['10.202.0.0/16', '198.51.100.1', '2001:db8::1'],
});

export function makeContext(settings: Partial<RuleSettings> = {}): RuleContext {
  return buildRuleContext({
    openPrivateRanges: ['10.1.0.0/16'],
    registries: { npm: ['npm.example', 'files.npm.example'], pypi: ['pypi.example'], crates: [] },
    ...settings,
  });
}

export function compile(rules: Partial<NetworkRules>): CompiledPolicy {
  const { policy } = buildNetworkPolicy(
    { allow: [], deny: [], ...rules },
    { field: 'network', context: makeContext() },
  );
  return compileNetworkPolicy(policy, CLOSED);
}
