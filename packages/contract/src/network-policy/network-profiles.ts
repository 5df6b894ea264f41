/** The catalogue of built-in and operator's profiles, and the policy that a request selects by name or by rules. */
import { AppError } from '../errors.ts';
import {
  buildNetworkPolicy,
  listRules,
  UNRESTRICTED_POLICY,
  type BuildOptions,
  type BuiltPolicy,
} from './build-network-policy.ts';
import { findNetworkPath } from './compile-network-policy.ts';
import { REGISTRY_RULE } from './network-rule.ts';
import { BUILTIN_PROFILES, FIXED_PROFILES } from './builtin-profiles.ts';
import type {
  NetworkPolicy,
  NetworkProfileEntry,
  NetworkProfileRecord,
  NetworkProfilesFile,
  NetworkRules,
} from './network-schemas.ts';
import type { RuleContext } from './rule-context.ts';

export interface NetworkProfile {
  /** The profile as the API lists it: registries are replaced by the hosts they have on this server. */
  record: NetworkProfileRecord;
  policy: NetworkPolicy;
  /** Rules of the profile that have no effect; for the operator's log. */
  warnings: string[];
}

/** Profiles by name, in the order of the list: built-in ones first. */
export type ProfileCatalogue = ReadonlyMap<string, NetworkProfile>;

/**
 * Builds the catalogue. A profile of the file replaces a built-in one with the same name. Throws `invalid_request` with
 * the faulty rule.
 */
export function buildProfileCatalogue(file: NetworkProfilesFile, context: RuleContext): ProfileCatalogue {
  const catalogue = new Map<string, NetworkProfile>();
  for (const entry of BUILTIN_PROFILES) {
    const options = { field: `profile ${entry.name}`, context, skipsMissingRegistries: true };
    catalogue.set(entry.name, buildProfile(entry, options));
  }
  const seen = new Set<string>();
  for (const [index, entry] of file.profiles.entries()) {
    const field = `network profiles: profiles[${index}]`;
    if (FIXED_PROFILES.has(entry.name) || seen.has(entry.name)) throw refuseName(field, entry.name);
    seen.add(entry.name);
    catalogue.set(entry.name, buildProfile(entry, { field, context }));
  }
  return catalogue;
}

export interface NetworkRequest {
  network?: NetworkRules | undefined;
  network_profile?: string | undefined;
}

export interface NetworkServices {
  catalogue: ProfileCatalogue;
  context: RuleContext;
}

/**
 * Returns the policy that a request selects; undefined if it selects none. Throws `invalid_request` or
 * `conflicting_options` (400) with the field and the remedy.
 */
export function findRequestedPolicy(
  { network, network_profile: name }: NetworkRequest,
  { catalogue, context }: NetworkServices,
): BuiltPolicy | undefined {
  if (network !== undefined && name !== undefined) {
    throw new AppError(
      'conflicting_options',
      'network, network_profile: exclude each other; remove one of them',
    );
  }
  if (network !== undefined) return buildNetworkPolicy(network, { field: 'network', context });
  if (name === undefined) return undefined;
  const profile = catalogue.get(name);
  if (profile !== undefined) return { policy: profile.policy, warnings: [] };
  const remedy = 'GET /v1/network-profiles lists the profiles';
  throw new AppError('invalid_request', `network_profile: there is no ${JSON.stringify(name)}; ${remedy}`);
}

/** As `findRequestedPolicy`, for a sandbox that inherits no policy: the default is the unrestricted policy. */
export function choosePolicy(request: NetworkRequest, services: NetworkServices): BuiltPolicy {
  return findRequestedPolicy(request, services) ?? { policy: UNRESTRICTED_POLICY, warnings: [] };
}

function buildProfile(entry: NetworkProfileEntry, options: BuildOptions): NetworkProfile {
  const { name, allow, deny } = entry;
  const rules = { allow, deny };
  const description = describe(entry, options.context);
  const { policy, warnings } = buildNetworkPolicy(rules, { ...options, profile: name });
  const isOpen = findNetworkPath(policy) === 'kernel';
  const shown = isOpen ? { allow: ['0.0.0.0/0'], deny: [] } : listRules(policy);
  const record = { name, ...(description === undefined ? {} : { description }), ...shown };
  return { record, policy, warnings };
}

/** Appends the registries whose hosts a built-in profile lacks on this server: it allows less than its name says. */
function describe(
  { description, allow }: NetworkProfileEntry,
  { registries, incompleteRegistries }: RuleContext,
): string | undefined {
  const names = allow.flatMap((rule) => REGISTRY_RULE.exec(rule)?.groups?.['registry'] ?? []);
  const missing = names.filter((name) => (registries.get(name) ?? []).length === 0);
  const partial = names.filter((name) => !missing.includes(name) && incompleteRegistries.has(name));
  if (missing.length + partial.length === 0) return description;
  const parts = [
    description,
    missing.length > 0 ? `This server knows no hosts of: ${missing.join(', ')}.` : undefined,
    partial.length > 0 ? `This server does not know all hosts of: ${partial.join(', ')}.` : undefined,
    'The operator can find them with "npm run setup".',
  ];
  return parts.filter((part) => part !== undefined).join(' ');
}

function refuseName(field: string, name: string): AppError {
  const reason = FIXED_PROFILES.has(name) ? 'is reserved by the service' : 'occurs twice';
  return new AppError('invalid_request', `${field}.name: ${JSON.stringify(name)} ${reason}; choose another`);
}
