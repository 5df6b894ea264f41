import type { CallOptions } from './transport/client-options.ts';
import type { Transport } from './transport/transport.ts';
import { encodeSegment, readArray, readNumber, readObject, readString } from './transport/wire.ts';

/** A secret that the service stores for your organization, without its value. */
export interface SecretInfo {
  /** Name of the secret, for `{ secret: name }` in credentials. */
  name: string;
  /** 1 for the first value; each `set()` adds 1. */
  version: number;
  /** Sandboxes that have not ended and whose credentials name the secret. */
  sandboxes: number;
  /**
   * Those of them that run and may still use an earlier value. They get the current one in a few seconds. Wait for 0
   * before you revoke an earlier value at its service.
   */
  outdatedSandboxes: number;
  /** Time of the first value, ISO 8601 UTC. */
  createdAt: string;
  /** Time of the current value, ISO 8601 UTC. */
  updatedAt: string;
}

/**
 * The named secrets of your organization, which credentials refer to. Available as `client.secrets`. Calls reject with
 * {@link CoppiceError}, and with `TypeError` for an empty name or a value that is not a string.
 */
export class Secrets {
  readonly #transport: Transport;

  /** Called by {@link Coppice} only. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Stores a secret, or replaces its value. Running sandboxes whose credentials name it use the new value from their next
   * request on, hibernated ones from their resume. The name has 1–40 of a–z, 0–9, `-` and `_`.
   *
   * @example
   * await client.secrets.set('openai-production', process.env.OPENAI_API_KEY ?? '');
   * await client.sandboxes.create({ credentials: { openai: { secret: 'openai-production' } } });
   */
  async set(name: string, value: string, options: CallOptions = {}): Promise<SecretInfo> {
    if (typeof value !== 'string') throw new TypeError('secrets.set: the value must be a string');
    const answer = await this.#transport.callJson(
      {
        method: 'PUT',
        path: secretPath(name),
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ value }),
        idempotent: true,
        signal: options.signal,
      },
      parseSecretInfo,
    );
    return answer.value;
  }

  /**
   * Lists the secrets of the organization, sorted by name. The list never includes values.
   *
   * @example
   * for (const { name, version } of await client.secrets.list()) console.log(name, version);
   */
  async list(options: CallOptions = {}): Promise<SecretInfo[]> {
    const answer = await this.#transport.callJson(
      { method: 'GET', path: '/v1/secrets', idempotent: true, signal: options.signal },
      (value) => readArray(value, 'the list of secrets', parseSecretInfo),
    );
    return answer.value;
  }

  /**
   * Gets a secret without its value. Rejects with code `not_found` when there is none.
   *
   * @example
   * const { outdatedSandboxes } = await client.secrets.get('openai-production');
   */
  async get(name: string, options: CallOptions = {}): Promise<SecretInfo> {
    const answer = await this.#transport.callJson(
      { method: 'GET', path: secretPath(name), idempotent: true, signal: options.signal },
      parseSecretInfo,
    );
    return answer.value;
  }

  /**
   * Deletes a secret. Rejects with code `secret_in_use` while the credentials of a sandbox name it, and with `not_found`
   * when there is none.
   *
   * @example
   * await client.secrets.delete('openai-production');
   */
  async delete(name: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.callEmpty({
      method: 'DELETE',
      path: secretPath(name),
      idempotent: true,
      signal: options.signal,
    });
  }
}

function secretPath(name: string): string {
  return `/v1/secrets/${encodeSegment(name, 'the name of the secret')}`;
}

function parseSecretInfo(value: unknown): SecretInfo {
  const record = readObject(value, 'the secret record');
  return {
    name: readString(record, 'name'),
    version: readNumber(record, 'version'),
    sandboxes: readNumber(record, 'sandboxes'),
    outdatedSandboxes: readNumber(record, 'outdated_sandboxes'),
    createdAt: readString(record, 'created_at'),
    updatedAt: readString(record, 'updated_at'),
  };
}
