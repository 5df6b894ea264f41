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
import type { RunnerClient } from '../../placement/runner-client.ts';
import type { RequestedEgress } from '../../sandbox/sandboxes.ts';

export interface EgressRequestParts {
  rules: EgressRules;
  secretValues: Pick<SecretValues, 'find'>;
  runner: Pick<RunnerClient, 'status'>;
}

export async function readRequestedEgress(
  organizationId: string,
  request: CreateSandboxRequest | RestoreSandboxRequest,
  { rules, runner, secretValues }: EgressRequestParts,
): Promise<RequestedEgress> {
  // One status request serves both.
  let asked: ReturnType<RunnerClient['status']> | undefined;
  const parts = { rules, secretValues, runner: { status: () => (asked ??= runner.status()) } };
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
  { rules, runner }: Pick<EgressRequestParts, 'rules' | 'runner'>,
): Promise<RequestedPolicy> {
  const built = rules.choosePolicy(request);
  if (isRestricted(built)) {
    const field = request.network === undefined ? 'network_profile' : 'network';
    await refuseWithoutNetwork(field, 'no rules can be set', runner);
  }
  const { policy, warnings } = built;
  const isDefault = policy.profile === null && isDefaultEgress({ network: policy, grants: [] });
  return { network: isDefault ? null : policy, warnings };
}

/** Reads credentials, and finds the secrets of the organization that they name. Throws `invalid_request`. */
export async function readGrants(
  organizationId: string,
  request: Pick<CreateSandboxRequest, 'credentials' | 'credentials_v2'>,
  { rules, runner, secretValues }: EgressRequestParts,
): Promise<Grant[]> {
  const grants = rules.readGrants(request);
  const field = Object.keys(request.credentials ?? {}).length > 0 ? 'credentials' : 'credentials_v2';
  if (grants.length > 0) await refuseWithoutNetwork(field, 'no credentials can be granted', runner);
  return secretValues.find(organizationId, grants);
}

async function refuseWithoutNetwork(
  field: string,
  consequence: string,
  runner: EgressRequestParts['runner'],
): Promise<void> {
  const { network, network_reason: reason } = await runner.status();
  if (network === 'filtered') return;
  throw new AppError(
    'invalid_request',
    `${field}: ${consequence}, sandboxes on this machine have no network at all: ${reason}`,
  );
}
