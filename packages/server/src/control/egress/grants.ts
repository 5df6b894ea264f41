/**
 * The secrets that the host adds for each sandbox, and the outbound network that its VM gets with them. A secret sealed
 * for one sandbox cannot be opened for another.
 */
import type { CredentialRecord, NetworkPolicy } from '@coppice/contract';
import { buildGuestEnvironment } from '../../lib/credential-services/placeholders.ts';
import { PROXY_PORT } from '../../lib/credential-services/proxy-address.ts';
import type { VmEgress } from '../../lib/protocol/egress-protocol.ts';
import type { Database } from '../db/database.ts';
import type { GrantRow, NewGrantRow } from './egress-tables.ts';
import type { SecretBox, SecretContext } from '../secrets/secret-box.ts';
import type { EgressRules } from './egress-rules.ts';
import type { Grant } from './grant.ts';
import type { GrantStore } from './grant-store.ts';
import { isDefaultEgress, revealEgress } from './vm-egress.ts';

export interface GrantHolder {
  id: string;
  organization_id: string;
}

/** A sandbox with its stored policy. */
export interface NetworkHolder extends GrantHolder {
  network: NetworkPolicy | null;
}

export interface GrantsParts {
  store: GrantStore;
  secrets: SecretBox;
  rules: Pick<EgressRules, 'findService'>;
}

export class Grants {
  readonly #store: GrantStore;
  readonly #secrets: SecretBox;
  readonly #rules: GrantsParts['rules'];

  constructor({ store, secrets, rules }: GrantsParts) {
    this.#store = store;
    this.#secrets = secrets;
    this.#rules = rules;
  }

  /** Adds grants to a sandbox that has none yet. */
  add(holder: GrantHolder, grants: readonly Grant[]): Promise<void> {
    return this.#store.insert(this.#seal(holder, grants));
  }

  /** Replaces all grants of a sandbox. Call inside a transaction. */
  replace(transaction: Database, holder: GrantHolder, grants: readonly Grant[]): Promise<void> {
    return this.#store.replace(transaction, holder.id, this.#seal(holder, grants));
  }

  /** Copies the grants of a parent to the children of a fork, sealed for each. */
  async copy(parent: GrantHolder, children: readonly GrantHolder[]): Promise<void> {
    const grants = await this.open(parent);
    await this.#store.insert(children.flatMap((child) => this.#seal(child, grants)));
  }

  /** Opens the grants of a sandbox. Throws `secret_unreadable` without the master key that they were sealed with. */
  async open(holder: GrantHolder): Promise<Grant[]> {
    const rows = await this.#store.list(holder.id);
    return rows.map(({ service, endpoints, sealed_secret }) => ({
      service,
      endpoints,
      secret: this.#secrets.open(sealed_secret, bindGrant(holder, service)),
    }));
  }

  /** Reveals the outbound network of a VM, with the given grants or else with the stored ones. */
  async reveal(holder: NetworkHolder, grants?: readonly Grant[]): Promise<VmEgress> {
    return revealEgress(holder.network, grants ?? (await this.open(holder)), this.#rules);
  }

  /** Like {@link reveal}, for a VM that is about to start: undefined if it is the default. */
  async revealStart(holder: NetworkHolder): Promise<VmEgress | undefined> {
    const egress = await this.reveal(holder);
    return isDefaultEgress(egress) ? undefined : egress;
  }

  async list({ id }: GrantHolder): Promise<CredentialRecord[]> {
    return (await this.#store.list(id)).map(buildCredentialRecord);
  }

  /** Returns the names of the variables with placeholders and addresses that the guest has for its grants. */
  async listVariables({ id }: GrantHolder): Promise<Set<string>> {
    const services = (await this.#store.list(id)).flatMap(
      ({ service }) => this.#rules.findService(service) ?? [],
    );
    return new Set(Object.keys(buildGuestEnvironment({ sandboxId: id, services, port: PROXY_PORT })));
  }

  #seal(holder: GrantHolder, grants: readonly Grant[]): NewGrantRow[] {
    const updated_at = Date.now();
    return grants.map(({ service, endpoints, secret }) => ({
      sandbox_id: holder.id,
      service,
      endpoints: endpoints === null ? null : JSON.stringify(endpoints),
      sealed_secret: this.#secrets.seal(secret, bindGrant(holder, service)),
      updated_at,
    }));
  }
}

/** The context that a sandbox's secret is bound to when sealed. */
export function bindGrant({ id, organization_id }: GrantHolder, service: string): SecretContext {
  return { organizationId: organization_id, purpose: 'credential', name: `${id}/${service}` };
}

function buildCredentialRecord({ service, endpoints, updated_at }: GrantRow): CredentialRecord {
  return { service, endpoints, updated_at: new Date(updated_at).toISOString() };
}
