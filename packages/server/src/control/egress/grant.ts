import type { CredentialEndpoint } from '@coppice/contract';
import type { Secret } from '../../lib/secret.ts';

/** A secret that the host adds to a sandbox's requests to a service. */
export interface Grant {
  service: string;
  /** null: any request. */
  endpoints: readonly CredentialEndpoint[] | null;
  secret: Secret;
}
