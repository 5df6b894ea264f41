/** Finds named secrets for credentials, and opens their current values. */
import { AppError } from '@coppice/contract';
import { Secret } from '../../../lib/secret.ts';
import type { SecretBox, SecretContext } from '../../secrets/secret-box.ts';
import type { Grant, NamedSecret, RequestedGrant } from '../grant.ts';
import type { NamedSecretStore } from './named-secret-store.ts';

/** The current value of a named secret. */
export interface SecretValue extends NamedSecret {
  version: number;
  value: Secret;
}

export interface SecretValuesParts {
  store: Pick<NamedSecretStore, 'findNames' | 'findValues'>;
  secrets: SecretBox;
}

export class SecretValues {
  readonly #store: SecretValuesParts['store'];
  readonly #secrets: SecretBox;

  constructor({ store, secrets }: SecretValuesParts) {
    this.#store = store;
    this.#secrets = secrets;
  }

  /** Finds the secrets that requested grants name. Throws `invalid_request`, which names the field, without showing the name. */
  async find(organizationId: string, requested: readonly RequestedGrant[]): Promise<Grant[]> {
    const names = requested.flatMap(({ secret }) => (secret instanceof Secret ? [] : secret.name));
    const rows = names.length === 0 ? [] : await this.#store.findNames(organizationId, names);
    const ids = new Map(rows.map(({ id, name }) => [name, id]));
    return requested.map(({ service, endpoints, secret, field }) => {
      if (secret instanceof Secret) return { service, endpoints, secret };
      const id = ids.get(secret.name);
      if (id === undefined) throw unknownSecret(field);
      return { service, endpoints, secret: { id, name: secret.name } };
    });
  }

  /**
   * Opens the current values, by the ids of their secrets. Throws `secret_unreadable` without the master key that they
   * were sealed with, and `invalid_request` for a secret that was deleted since it was found.
   */
  async open(organizationId: string, named: readonly NamedSecret[]): Promise<Map<string, SecretValue>> {
    if (named.length === 0) return new Map();
    const ids = named.map(({ id }) => id);
    const rows = await this.#store.findValues(organizationId, ids);
    if (named.some(({ id }) => !rows.some((row) => row.id === id))) throw deletedMeanwhile();
    return new Map(
      rows.map(({ id, name, version, sealed_value }) => [
        id,
        { id, name, version, value: this.#secrets.open(sealed_value, bindNamedSecret(organizationId, name)) },
      ]),
    );
  }
}

/** The context that a named secret is bound to when sealed. */
export function bindNamedSecret(organizationId: string, name: string): SecretContext {
  return { organizationId, purpose: 'secret value', name };
}

export function deletedMeanwhile(): AppError {
  return new AppError('invalid_request', 'credentials: a secret that they name was deleted meanwhile');
}

/** Does not show the name: a caller who confuses name and value puts the secret there. */
function unknownSecret(field: string): AppError {
  const remedy = 'store it first with PUT /v1/secrets/{name}';
  return new AppError(
    'invalid_request',
    `${field}.secret: the organization has no secret of this name; ${remedy}`,
  );
}
