import type { CallOptions } from './transport/client-options.ts';
import type { Transport } from './transport/transport.ts';
import { buildWireBody, encodeSegment, readArray, readObject, readString } from './transport/wire.ts';

/** Credentials that the service sends to a registry. */
export interface RegistryLogin {
  /** User name. */
  username: string;
  /** Password or access token. */
  password: string;
}

/** Credentials that the service stores for your organization, without the password. */
export interface RegistryInfo {
  /** `host` or `host:port` of the registry; `docker.io` for image references without a registry. */
  registry: string;
  /** User name. */
  username: string;
  /** Time of the last change, ISO 8601 UTC. */
  updatedAt: string;
}

const LOGIN_FIELDS = {
  username: 'username',
  password: 'password',
} as const satisfies Record<keyof RegistryLogin, string>;

/**
 * Your organization's credentials for private image registries. Available as `client.registries`. Calls reject with
 * {@link CoppiceError}, and with `TypeError` for an empty registry name or an unknown field.
 */
export class Registries {
  readonly #transport: Transport;

  /** Called by {@link Coppice} only. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Stores the credentials for a registry, or replaces them. Later creates and builds of its images use them.
   * `registry` is `host` or `host:port`, or `docker.io` for image references without a registry.
   *
   * @example
   * await client.registries.set('ghcr.io', { username: 'robot', password: process.env.REGISTRY_TOKEN ?? '' });
   */
  async set(registry: string, login: RegistryLogin, options: CallOptions = {}): Promise<RegistryInfo> {
    const answer = await this.#transport.callJson(
      {
        method: 'PUT',
        path: registryPath(registry),
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(buildWireBody(login, LOGIN_FIELDS, 'registries.set')),
        idempotent: true,
        signal: options.signal,
      },
      parseRegistryInfo,
    );
    return answer.value;
  }

  /**
   * Lists the registries for which the service stores credentials. The list never includes passwords.
   *
   * @example
   * for (const { registry, username } of await client.registries.list()) console.log(registry, username);
   */
  async list(options: CallOptions = {}): Promise<RegistryInfo[]> {
    const answer = await this.#transport.callJson(
      { method: 'GET', path: '/v1/registries', idempotent: true, signal: options.signal },
      (value) => readArray(value, 'the list of registries', parseRegistryInfo),
    );
    return answer.value;
  }

  /**
   * Deletes the credentials for a registry: the next create does not use them. Rejects with code `not_found` when there
   * are none.
   *
   * @example
   * await client.registries.delete('ghcr.io');
   */
  async delete(registry: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.callEmpty({
      method: 'DELETE',
      path: registryPath(registry),
      idempotent: true,
      signal: options.signal,
    });
  }
}

function registryPath(registry: string): string {
  return `/v1/registries/${encodeSegment(registry, 'the registry')}`;
}

function parseRegistryInfo(value: unknown): RegistryInfo {
  const record = readObject(value, 'the registry record');
  return {
    registry: readString(record, 'registry'),
    username: readString(record, 'username'),
    updatedAt: readString(record, 'updated_at'),
  };
}
