import { listRules, type NetworkCounters, type NetworkPolicy, type NetworkRecord } from '@coppice/contract';

export function buildNetworkRecord(
  policy: NetworkPolicy,
  counters: NetworkCounters | null,
  warnings: string[] = [],
): NetworkRecord {
  return { network_profile: policy.profile, network: listRules(policy), counters, warnings };
}
