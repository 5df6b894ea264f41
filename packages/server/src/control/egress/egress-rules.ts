/**
 * The rules that requests for networks and credentials are checked against, built at start from the operator's
 * settings.
 */
import {
  buildProfileCatalogue,
  buildRuleContext,
  choosePolicy,
  collectGrants,
  findNetworkPath,
  type GrantableService,
  type BuiltPolicy,
  type NetworkProfileRecord,
  type NetworkProfilesFile,
  type NetworkRequest,
  type NetworkServices,
  type PutCredentialsRequest,
} from '@coppice/contract';
import type { CredentialService } from '../../lib/credential-services/credential-service.ts';
import { Secret } from '../../lib/secret.ts';
import type { RequestedGrant } from './grant.ts';

/** The settings as plain JSON. */
export interface EgressSettings {
  openPrivateRanges: readonly string[];
  /** Hosts of each package registry, as set-up found them. */
  registries: Readonly<Record<string, readonly string[]>>;
  /** Registries of which set-up has not found all hosts. */
  incompleteRegistries: readonly string[];
  /** The operator's profiles. */
  profiles: NetworkProfilesFile['profiles'];
  /** All credential services. */
  services: readonly CredentialService[];
  /** Built-in services that the operator has replaced, and with them the place where their secrets go. */
  replacedServices: readonly string[];
}

export class EgressRules {
  readonly #network: NetworkServices;
  readonly #services: ReadonlyMap<string, CredentialService>;
  readonly #grantable: readonly GrantableService[];

  /** Throws `invalid_request`, which names the wrong setting. */
  constructor(settings: EgressSettings) {
    const { profiles, services } = settings;
    const context = buildRuleContext(settings);
    this.#network = { context, catalogue: buildProfileCatalogue({ profiles }, context) };
    this.#services = new Map(services.map((service) => [service.name, service]));
    this.#grantable = services.map(({ name, base_path }) => ({ name, basePath: base_path }));
  }

  /** Rules of profiles that have no effect, for the operator's log. */
  get warnings(): string[] {
    return [...this.#network.catalogue.values()].flatMap(({ warnings }) => warnings);
  }

  listProfiles(): NetworkProfileRecord[] {
    return [...this.#network.catalogue.values()].map(({ record }) => record);
  }

  /** Returns the policy of a request; unrestricted if it names none. Throws 400 with the field and the remedy. */
  choosePolicy(request: NetworkRequest): BuiltPolicy {
    return choosePolicy(request, this.#network);
  }

  /** Returns the grants of a request. Throws 400; no message contains a secret. */
  readGrants(request: PutCredentialsRequest): RequestedGrant[] {
    return collectGrants(request, this.#grantable).map(({ service, key, endpoints, field }) => ({
      service,
      endpoints,
      secret: typeof key === 'string' ? new Secret(key) : { name: key.secret },
      field,
    }));
  }

  /** Returns undefined for a service that the operator has removed since it was granted. */
  findService(name: string): CredentialService | undefined {
    return this.#services.get(name);
  }
}

/** Returns whether the policy needs a network that filters. */
export function isRestricted({ policy }: BuiltPolicy): boolean {
  return findNetworkPath(policy) === 'proxy';
}
