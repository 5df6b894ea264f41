/** What a sandbox's VM is told of its way out, from what is stored. */
import { AppError, UNRESTRICTED_POLICY, type NetworkPolicy } from '@coppice/contract';
import { hasNoRules, type VmEgress } from '../../lib/protocol/egress-protocol.ts';
import type { EgressRules } from './egress-rules.ts';
import type { Grant } from './grant.ts';

/** The only place where credentials leave this process: what it returns goes into the runner's socket, and nowhere else. */
export function revealEgress(
  policy: NetworkPolicy | null,
  grants: readonly Grant[],
  rules: Pick<EgressRules, 'findService'>,
): VmEgress {
  return {
    network: policy ?? UNRESTRICTED_POLICY,
    grants: grants.map(({ service: name, endpoints, secret }) => {
      const service = rules.findService(name);
      if (service === undefined)
        throw new AppError(
          'secret_unreadable',
          `the service ${name} is no longer known here: the operator puts it back, or credentials are set anew`,
        );
      return { service, endpoints: endpoints === null ? null : [...endpoints], secret: secret.reveal() };
    }),
  };
}

/** What a runner takes as said when nothing is said. */
export function isDefaultEgress(egress: VmEgress): boolean {
  return hasNoRules(egress) && egress.network.allow.length === 0;
}
