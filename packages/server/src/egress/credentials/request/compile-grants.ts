/** Grants as they are looked up for each request: compiled once for each set that is told. */
import type { CredentialEndpoint } from '@coppice/contract';
import type { CredentialService } from '../../../lib/credential-services/credential-service.ts';
import { Secret } from '../../../lib/secret.ts';
import { compileEndpointRules } from './endpoint-rules.ts';
import type { HeldCredential } from './outbound-request.ts';

/** `EgressGrant`, and the same without its secret, as it is after the runner was started again. */
export interface ToldGrant {
  service: CredentialService;
  endpoints: readonly CredentialEndpoint[] | null;
  secret?: string | null | undefined;
}

/** By the service's name. */
export function compileGrants(grants: readonly ToldGrant[]): ReadonlyMap<string, HeldCredential> {
  return new Map(
    grants.map(({ service, endpoints, secret }) => [
      service.name,
      {
        service,
        rules: compileEndpointRules(endpoints),
        secret: typeof secret === 'string' && secret !== '' ? new Secret(secret) : undefined,
      },
    ]),
  );
}
