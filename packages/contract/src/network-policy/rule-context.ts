/** The settings of the server on which the meaning of a rule depends. */
import { AppError } from '../errors.ts';
import { buildRangeTable, parseIpRange, type RangeTable } from './ip-range.ts';
import { isCatchAll, readNetworkRule, REGISTRY_RULE, type NetworkRule } from './network-rule.ts';

/** More hosts than a package registry has. */
const MAX_REGISTRY_HOSTS = 64;
const MAX_REGISTRIES = 64;

export interface RuleSettings {
  openPrivateRanges: readonly string[];
  /** Hosts of each package registry, as set-up found them. */
  registries: Readonly<Record<string, readonly string[]>>;
  /** Registries for which set-up did not find all hosts. */
  incompleteRegistries?: readonly string[];
}

export interface RuleContext {
  opened: RangeTable;
  registries: ReadonlyMap<string, readonly NetworkRule[]>;
  incompleteRegistries: ReadonlySet<string>;
}

export function buildRuleContext(settings: RuleSettings): RuleContext {
  const { openPrivateRanges, registries, incompleteRegistries = [] } = settings;
  const opened = openPrivateRanges.map((text) => parseIpRange('openPrivateRanges', text));
  const entries = Object.entries(registries);
  if (entries.length > MAX_REGISTRIES) throw refuse(`more than ${MAX_REGISTRIES} registries`);
  return {
    opened: buildRangeTable(opened),
    registries: new Map(entries.map(([name, hosts]) => [name, readRegistry(name, hosts)])),
    incompleteRegistries: new Set(incompleteRegistries),
  };
}

function readRegistry(name: string, hosts: readonly string[]): NetworkRule[] {
  if (!REGISTRY_RULE.test(`registry:${name}`)) throw refuse(`${JSON.stringify(name)} is not a registry name`);
  if (hosts.length > MAX_REGISTRY_HOSTS) throw refuse(`${name} has more than ${MAX_REGISTRY_HOSTS} hosts`);
  return hosts.map((text) => {
    const rule = readNetworkRule(text);
    if ('fault' in rule) throw refuse(`${name}: ${JSON.stringify(text)} ${rule.fault}`);
    if (rule.kind === 'registry' || isCatchAll(rule)) {
      throw refuse(`${name}: ${JSON.stringify(text)} is not a host of a registry`);
    }
    return rule;
  });
}

function refuse(fault: string): AppError {
  return new AppError('invalid_request', `package registries: ${fault}`);
}
