import type { CallOptions } from './transport/client-options.ts';
import type { Transport } from './transport/transport.ts';
import { buildWireBody, encodeSegment, readArray, readObject, readString } from './transport/wire.ts';

/** What a registry is told: a name with a password or an access token. */
export interface RegistryLogin {
  username: string;
  password: string;
}

/** Credentials that the service holds for your organization. */
export interface RegistryInfo {
  /** `host` or `host:port`; `docker.io` for images without one. */
  registry: string;
  username: string;
  /** ISO 8601 UTC. */
  updatedAt: string;
}

const LOGIN_FIELDS = {
  username: 'username',
  password: 'password',
} as const satisfies Record<keyof RegistryLogin, string>;

/** Your organization's credentials for private image registries. Reached as `client.registries`. */
export class Registries {
  readonly #transport: Transport;

  /** Made by {@link Coppice}. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Stores credentials for a registry, or replaces them. Creates and builds of its images use them from now on.
   *
   * @example
   * await client.registries.set('ghcr.io', { username: 'robot', password: process.env.REGISTRY_TOKEN });
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
   * Lists the registries that there are credentials for; passwords are never shown.
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
   * Deletes the credentials for a registry: the next create does without. Rejects with `not_found` when there are none.
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
