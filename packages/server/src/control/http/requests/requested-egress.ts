/** Reads the network and the credentials that a request asks for, and checks them against this machine. */
import {
  AppError,
  type CreateSandboxRequest,
  type NetworkPolicy,
  type NetworkRequest,
  type RestoreSandboxRequest,
} from '@coppice/contract';
import { isDefaultEgress } from '../../egress/vm-egress.ts';
import { isRestricted, type EgressRules } from '../../egress/egress-rules.ts';
import type { SecretValues } from '../../egress/named-secrets/secret-values.ts';
import type { Grant } from '../../egress/grant.ts';
import type { Runners } from '../../runners/runners.ts';
import type { RequestedEgress } from '../../sandbox/sandboxes.ts';

export interface EgressRequestParts {
  rules: EgressRules;
  secretValues: Pick<SecretValues, 'find'>;
  runners: Pick<Runners, 'findNetworkAbsence'>;
}

export async function readRequestedEgress(
  organizationId: string,
  request: CreateSandboxRequest | RestoreSandboxRequest,
  { rules, runners, secretValues }: EgressRequestParts,
): Promise<RequestedEgress> {
  // One status request serves both.
  let asked: ReturnType<Runners['findNetworkAbsence']> | undefined;
  const parts = {
    rules,
    secretValues,
    runners: { findNetworkAbsence: () => (asked ??= runners.findNetworkAbsence()) },
  };
  const saysNetwork = request.network !== undefined || request.network_profile !== undefined;
  const network = saysNetwork ? (await readPolicy(request, parts)).network : undefined;
  return { network, grants: await readGrants(organizationId, request, parts) };
}

export interface RequestedPolicy {
  /** Null for the default policy, which restricts nothing. */
  network: NetworkPolicy | null;
  warnings: string[];
}

/** Returns the requested policy, which is unrestricted by default. Throws `invalid_request`. */
export async function readPolicy(
  request: NetworkRequest,
  { rules, runners }: Pick<EgressRequestParts, 'rules' | 'runners'>,
): Promise<RequestedPolicy> {
  const built = rules.choosePolicy(request);
  if (isRestricted(built)) {
    const field = request.network === undefined ? 'network_profile' : 'network';
    await refuseWithoutNetwork(field, 'no rules can be set', runners);
  }
  const { policy, warnings } = built;
  const isDefault = policy.profile === null && isDefaultEgress({ network: policy, grants: [] });
  return { network: isDefault ? null : policy, warnings };
}

/** Reads credentials, and finds the secrets of the organization that they name. Throws `invalid_request`. */
export async function readGrants(
  organizationId: string,
  request: Pick<CreateSandboxRequest, 'credentials' | 'credentials_v2'>,
  { rules, runners, secretValues }: EgressRequestParts,
): Promise<Grant[]> {
  const grants = rules.readGrants(request);
  const field = Object.keys(request.credentials ?? {}).length > 0 ? 'credentials' : 'credentials_v2';
  if (grants.length > 0) await refuseWithoutNetwork(field, 'no credentials can be granted', runners);
  return secretValues.find(organizationId, grants);
}

async function refuseWithoutNetwork(
  field: string,
  consequence: string,
  runners: EgressRequestParts['runners'],
): Promise<void> {
  const reason = await runners.findNetworkAbsence();
  if (reason === undefined) return;
  throw new AppError(
    'invalid_request',
    `${field}: ${consequence}, sandboxes on this machine have no network at all: ${reason}`,
  );
}
