/** The secrets that the host adds for each sandbox. A secret sealed for one sandbox cannot be opened for another. */
import type { CredentialRecord } from '@coppice/contract';
import type { Database } from '../db/database.ts';
import type { GrantRow, NewGrantRow } from './egress-tables.ts';
import type { SecretBox, SecretContext } from '../secrets/secret-box.ts';
import type { Grant } from './grant.ts';
import type { GrantStore } from './grant-store.ts';

export interface GrantHolder {
  id: string;
  organization_id: string;
}

export interface GrantsParts {
  store: GrantStore;
  secrets: SecretBox;
}

export class Grants {
  readonly #store: GrantStore;
  readonly #secrets: SecretBox;

  constructor({ store, secrets }: GrantsParts) {
    this.#store = store;
    this.#secrets = secrets;
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

  async list({ id }: GrantHolder): Promise<CredentialRecord[]> {
    return (await this.#store.list(id)).map(buildCredentialRecord);
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
