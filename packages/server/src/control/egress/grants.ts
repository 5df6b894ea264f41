/**
 * The secrets that the host adds for each sandbox, and the outbound network that its VM gets with them. A secret sealed
 * for one sandbox cannot be opened for another.
 */
import type { CredentialRecord, NetworkPolicy } from '@coppice/contract';
import { buildGuestEnvironment } from '../../lib/credential-services/placeholders.ts';
import { PROXY_PORT } from '../../lib/credential-services/proxy-address.ts';
import { invariant } from '../../lib/invariant.ts';
import type { VmEgress } from '../../lib/protocol/egress-protocol.ts';
import { Secret } from '../../lib/secret.ts';
import type { Database } from '../db/database.ts';
import type { NewGrantRow } from './egress-tables.ts';
import type { SecretBox, SecretContext } from '../secrets/secret-box.ts';
import type { EgressRules } from './egress-rules.ts';
import type { Grant, OpenGrant } from './grant.ts';
import type { GrantStore, RotatedGrant, StoredGrant } from './grant-store.ts';
import type { SecretValues } from './named-secrets/secret-values.ts';
import { isDefaultEgress, revealEgress } from './vm-egress.ts';

export interface GrantHolder {
  id: string;
  organization_id: string;
}

/** A sandbox with its stored policy. */
export interface NetworkHolder extends GrantHolder {
  network: NetworkPolicy | null;
}

/** A grant that a new version of its named secret has reached. */
export interface Rotated extends RotatedGrant {
  /** Name of the secret. */
  secret: string;
}

export interface GrantsParts {
  store: GrantStore;
  secrets: SecretBox;
  values: Pick<SecretValues, 'open'>;
  rules: Pick<EgressRules, 'findService'>;
}

export class Grants {
  readonly #store: GrantStore;
  readonly #secrets: SecretBox;
  readonly #values: GrantsParts['values'];
  readonly #rules: GrantsParts['rules'];

  constructor({ store, secrets, values, rules }: GrantsParts) {
    this.#store = store;
    this.#secrets = secrets;
    this.#values = values;
    this.#rules = rules;
  }

  /** Adds grants to a sandbox that has none yet. */
  add(holder: GrantHolder, grants: readonly Grant[]): Promise<void> {
    return this.#store.insert(grants.map((grant) => this.#buildRow(holder, grant)));
  }

  /**
   * Replaces all grants of a sandbox. Call inside a transaction. Returns whether their named secrets still have these
   * values: if not, the caller sends the grants once more.
   */
  replace(transaction: Database, holder: GrantHolder, grants: readonly OpenGrant[]): Promise<boolean> {
    const rows = grants.map((grant) => ({
      ...this.#buildRow(holder, { ...grant, secret: grant.named ?? grant.secret }),
      secret_version: grant.named?.version ?? null,
    }));
    return this.#store.replace(transaction, holder.id, rows);
  }

  /** Copies the grants of a parent to the children of a fork, sealed for each. */
  async copy(parent: GrantHolder, children: readonly GrantHolder[]): Promise<void> {
    const grants = await this.#find(parent);
    await this.#store.insert(
      children.flatMap((child) => grants.map((grant) => this.#buildRow(child, grant))),
    );
  }

  /**
   * Opens the stored grants of a sandbox, or those given, with the current values of named secrets. Throws
   * `secret_unreadable` without the master key that they were sealed with.
   */
  async open(holder: GrantHolder, given?: readonly Grant[]): Promise<OpenGrant[]> {
    const grants = given ?? (await this.#find(holder));
    const named = grants.flatMap(({ secret }) => (secret instanceof Secret ? [] : secret));
    const values = await this.#values.open(holder.organization_id, named);
    return grants.map(({ service, endpoints, secret }) => {
      if (secret instanceof Secret) return { service, endpoints, secret, named: null };
      const found = values.get(secret.id);
      invariant(found, 'all values were opened');
      const { id, name, version, value } = found;
      return { service, endpoints, secret: value, named: { id, name, version } };
    });
  }

  /** Builds the outbound network of a VM with these grants. */
  build(holder: NetworkHolder, grants: readonly OpenGrant[]): VmEgress {
    return revealEgress(holder.network, grants, this.#rules);
  }

  /** Like {@link build}, for a VM that is about to start: undefined if it is the default. */
  buildStart(holder: NetworkHolder, grants: readonly OpenGrant[]): VmEgress | undefined {
    const egress = this.build(holder, grants);
    return isDefaultEgress(egress) ? undefined : egress;
  }

  /** Returns those of the grants, as they were sent to the runner, whose version is not recorded yet. */
  async findRotated({ id }: GrantHolder, sent: readonly OpenGrant[]): Promise<Rotated[]> {
    if (sent.every(({ named }) => named === null)) return [];
    const rows = await this.#store.list(id);
    return sent.flatMap(({ service, named }) => {
      const row = rows.find((each) => each.service === service && each.secret_id === named?.id);
      if (named === null || row === undefined || (row.secret_version ?? 0) >= named.version) return [];
      return { service, secretId: named.id, secret: named.name, version: named.version };
    });
  }

  /** Records that requests are signed with these versions. Call inside a transaction. */
  storeVersions(transaction: Database, { id }: GrantHolder, rotated: readonly Rotated[]): Promise<void> {
    return this.#store.storeVersions(transaction, id, rotated);
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

  async #find(holder: GrantHolder): Promise<Grant[]> {
    const rows = await this.#store.list(holder.id);
    return rows.map(({ service, endpoints, sealed_secret, secret_id: id, secret_name: name }) => {
      if (id !== null && name !== null) return { service, endpoints, secret: { id, name } };
      invariant(sealed_secret, 'a grant has a value or names a secret');
      return { service, endpoints, secret: this.#secrets.open(sealed_secret, bindGrant(holder, service)) };
    });
  }

  #buildRow(holder: GrantHolder, { service, endpoints, secret }: Grant): NewGrantRow {
    const isOwn = secret instanceof Secret;
    return {
      sandbox_id: holder.id,
      service,
      endpoints: endpoints === null ? null : JSON.stringify(endpoints),
      sealed_secret: isOwn ? this.#secrets.seal(secret, bindGrant(holder, service)) : null,
      secret_id: isOwn ? null : secret.id,
      updated_at: Date.now(),
    };
  }
}

/** The context that a sandbox's secret is bound to when sealed. */
export function bindGrant({ id, organization_id }: GrantHolder, service: string): SecretContext {
  return { organizationId: organization_id, purpose: 'credential', name: `${id}/${service}` };
}

function buildCredentialRecord(grant: StoredGrant): CredentialRecord {
  const { service, endpoints, secret_name: secret, updated_at } = grant;
  return { service, endpoints, secret, updated_at: new Date(updated_at).toISOString() };
}
