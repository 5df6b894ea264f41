/** Builds the outbound network settings of a sandbox's VM from the stored policy and grants. */
import { AppError, UNRESTRICTED_POLICY, type NetworkPolicy } from '@coppice/contract';
import { hasNoRules, type VmEgress } from '../../lib/protocol/egress-protocol.ts';
import type { EgressRules } from './egress-rules.ts';
import type { OpenGrant } from './grant.ts';

/**
 * Reveals credentials. This is the only place where they leave this process: the result goes into the runner's socket
 * and nowhere else. Throws `secret_unreadable` for a service that no longer exists.
 */
export function revealEgress(
  policy: NetworkPolicy | null,
  grants: readonly OpenGrant[],
  rules: Pick<EgressRules, 'findService'>,
): VmEgress {
  return {
    network: policy ?? UNRESTRICTED_POLICY,
    grants: grants.map(({ service: name, endpoints, secret }) => {
      const service = rules.findService(name);
      if (service === undefined)
        throw new AppError(
          'secret_unreadable',
          `the service ${name} no longer exists here: the operator can add it again, or you can set credentials again`,
        );
      return { service, endpoints: endpoints === null ? null : [...endpoints], secret: secret.reveal() };
    }),
  };
}

/** Returns whether these are the settings that a runner applies by default. */
export function isDefaultEgress(egress: VmEgress): boolean {
  return hasNoRules(egress) && egress.network.allow.length === 0;
}
