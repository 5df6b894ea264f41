/** What requests for networks and credentials are judged by: made once at start, of the operator's settings. */
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
import type { Grant } from './grant.ts';

/** As the settings have it; plain JSON. */
export interface EgressSettings {
  openPrivateRanges: readonly string[];
  /** Hosts of each package registry, as set-up found them. */
  registries: Readonly<Record<string, readonly string[]>>;
  /** Those of which it has not found all. */
  incompleteRegistries: readonly string[];
  /** The operator's own. */
  profiles: NetworkProfilesFile['profiles'];
  /** All that there are. */
  services: readonly CredentialService[];
  /** Built-in ones whose place others have taken, and with it where their secrets go. */
  replacedServices: readonly string[];
}

export class EgressRules {
  readonly #network: NetworkServices;
  readonly #services: ReadonlyMap<string, CredentialService>;
  readonly #grantable: readonly GrantableService[];

  /** Throws `invalid_request` that names what of the settings is wrong. */
  constructor(settings: EgressSettings) {
    const { profiles, services } = settings;
    const context = buildRuleContext(settings);
    this.#network = { context, catalogue: buildProfileCatalogue({ profiles }, context) };
    this.#services = new Map(services.map((service) => [service.name, service]));
    this.#grantable = services.map(({ name, base_path }) => ({ name, basePath: base_path }));
  }

  /** For the operator's log: rules of profiles that change nothing. */
  get warnings(): string[] {
    return [...this.#network.catalogue.values()].flatMap(({ warnings }) => warnings);
  }

  listProfiles(): NetworkProfileRecord[] {
    return [...this.#network.catalogue.values()].map(({ record }) => record);
  }

  /** Unrestricted when the request says nothing of it. Throws 400 with the field and the remedy. */
  choosePolicy(request: NetworkRequest): BuiltPolicy {
    return choosePolicy(request, this.#network);
  }

  /** Throws 400; no message holds a secret. */
  readGrants(request: PutCredentialsRequest): Grant[] {
    return collectGrants(request, this.#grantable).map(({ service, key, endpoints }) => ({
      service,
      endpoints,
      secret: new Secret(key),
    }));
  }

  /** Undefined for one that the operator has taken out since it was granted. */
  findService(name: string): CredentialService | undefined {
    return this.#services.get(name);
  }
}

/** Whether a network that filters is needed for it. */
export function isRestricted({ policy }: BuiltPolicy): boolean {
  return findNetworkPath(policy) === 'proxy';
}
