import type { CredentialEndpoint } from '@coppice/contract';
import type { Secret } from '../../lib/secret.ts';

/** A secret that the organization has stored under a name. */
export interface NamedSecret {
  id: string;
  name: string;
}

interface GrantRules {
  service: string;
  /** null: any request. */
  endpoints: readonly CredentialEndpoint[] | null;
}

/** A grant as a request names it. */
export interface RequestedGrant extends GrantRules {
  secret: Secret | { name: string };
  /** The field of the request that has the secret. */
  field: string;
}

/** A secret that the host adds to a sandbox's requests to a service. */
export interface Grant extends GrantRules {
  secret: Secret | NamedSecret;
}

/** A grant with the value that requests are signed with now. */
export interface OpenGrant extends GrantRules {
  secret: Secret;
  /** The named secret that has the value, and the version of that. Null if the grant has a value of its own. */
  named: (NamedSecret & { version: number }) | null;
}
