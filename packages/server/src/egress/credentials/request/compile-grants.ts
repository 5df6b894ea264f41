/** Compiles grants once for each set that the runner sends, for look-ups by each request. */
import type { CredentialEndpoint } from '@coppice/contract';
import type { CredentialService } from '../../../lib/credential-services/credential-service.ts';
import { Secret } from '../../../lib/secret.ts';
import { compileEndpointRules } from './endpoint-rules.ts';
import type { HeldCredential } from './outbound-request.ts';

/** An `EgressGrant`, or one without its secret, as after a restart of the runner. */
export interface ToldGrant {
  service: CredentialService;
  endpoints: readonly CredentialEndpoint[] | null;
  secret?: string | null | undefined;
}

/** Returns the compiled grants by the name of their service. */
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
