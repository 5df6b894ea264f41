/** The egress rules and granted secrets of a VM. Its record on disk holds no secrets. */
import { UNRESTRICTED_POLICY } from '@coppice/contract';
import type { CredentialService } from '../../lib/credential-services/credential-service.ts';
import { buildGuestEnvironment } from '../../lib/credential-services/placeholders.ts';
import { PROXY_PORT } from '../../lib/credential-services/proxy-address.ts';
import type { VmEgress } from '../../lib/protocol/egress-protocol.ts';
import type { EgressRecord } from '../vm/vm-record.ts';

/** The default of a sandbox: no restrictions and no grants. */
export const NO_RULES: VmEgress = { network: UNRESTRICTED_POLICY, grants: [] };

export function toEgressRecord({ network, grants }: VmEgress): EgressRecord {
  return { network, grants: grants.map(({ service, endpoints }) => ({ service, endpoints })) };
}

/** The secrets are unknown until control sends them again: they were in the memory of the former process. */
export function readEgressRecord(record: EgressRecord | undefined): VmEgress {
  if (record === undefined) return NO_RULES;
  return { network: record.network, grants: record.grants.map((grant) => ({ ...grant, secret: null })) };
}

/** Builds variables with placeholders and addresses in place of secrets. The image's own variables override them. */
export function buildPlaceholders(
  sandboxId: string,
  services: readonly CredentialService[],
): Record<string, string> {
  return buildGuestEnvironment({ sandboxId, services, port: PROXY_PORT });
}
