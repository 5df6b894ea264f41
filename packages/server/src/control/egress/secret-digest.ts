/**
 * Replaces the secrets of a request by keyed hashes, to compare it with an earlier request. Without the key, stored
 * hashes cannot be used to guess secrets.
 */
import { createHmac, hkdfSync } from 'node:crypto';
import type { PutCredentialsRequest, SecretReference } from '@coppice/contract';

const KEY_BYTES = 32;

export class SecretDigest {
  readonly #key: Buffer;

  constructor(masterKey: Buffer) {
    this.#key = Buffer.from(hkdfSync('sha256', masterKey, '', 'coppice digest of secrets', KEY_BYTES));
  }

  /** Returns the body with hashes in place of its secrets. Objects stay objects: the order of their fields is free. */
  hide({ env, ...body }: PutCredentialsRequest & { env?: Record<string, string> | undefined }): unknown {
    if (env === undefined) return this.#hideCredentials(body);
    return { ...this.#hideCredentials(body), env: this.#hashValues(env) };
  }

  #hideCredentials(body: PutCredentialsRequest): object {
    const { credentials, credentials_v2, ...rest } = body;
    if (credentials === undefined && credentials_v2 === undefined) return body;
    const ruled = Object.entries(credentials_v2 ?? {}).map(
      ([name, { key, endpoints }]) => [name, { key: this.#hideKey(key), endpoints }] as const,
    );
    return {
      ...rest,
      credentials: Object.fromEntries(
        Object.entries(credentials ?? {}).map(([name, key]) => [name, this.#hideKey(key)]),
      ),
      credentials_v2: Object.fromEntries(ruled),
    };
  }

  /** Leaves the name of a secret of the organization as it is: another value of that is no other request. */
  #hideKey(key: string | SecretReference): string | SecretReference {
    return typeof key === 'string' ? this.#hash(key) : key;
  }

  #hashValues(secrets: Readonly<Record<string, string>>): Record<string, string> {
    return Object.fromEntries(Object.entries(secrets).map(([name, secret]) => [name, this.#hash(secret)]));
  }

  #hash(secret: string): string {
    return createHmac('sha256', this.#key).update(secret).digest('hex');
  }
}
