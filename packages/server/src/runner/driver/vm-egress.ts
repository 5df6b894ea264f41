/** What a sandbox may send and which secrets are added to it, as its VM carries it: the record on disk has no secrets. */
import { UNRESTRICTED_POLICY } from '@coppice/contract';
import type { CredentialService } from '../../lib/credential-services/credential-service.ts';
import { buildGuestEnvironment } from '../../lib/credential-services/placeholders.ts';
import { PROXY_PORT } from '../../lib/credential-services/proxy-address.ts';
import type { VmEgress } from '../../lib/protocol/egress-protocol.ts';
import type { EgressRecord } from '../vm/vm-record.ts';

/** Of a sandbox that nobody has said anything about. */
export const NO_RULES: VmEgress = { network: UNRESTRICTED_POLICY, grants: [] };

export function toEgressRecord({ network, grants }: VmEgress): EgressRecord {
  return { network, grants: grants.map(({ service, endpoints }) => ({ service, endpoints })) };
}

/** Until control tells them again the secrets are unknown: they were in the memory of the former process. */
export function readEgressRecord(record: EgressRecord | undefined): VmEgress {
  if (record === undefined) return NO_RULES;
  return { network: record.network, grants: record.grants.map((grant) => ({ ...grant, secret: null })) };
}

/** Placeholders and addresses in place of secrets: they lie under the image's own variables. */
export function buildPlaceholders(
  sandboxId: string,
  services: readonly CredentialService[],
): Record<string, string> {
  return buildGuestEnvironment({ sandboxId, services, port: PROXY_PORT });
}
