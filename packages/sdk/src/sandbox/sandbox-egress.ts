import type { CallOptions } from '../transport/client-options.ts';
import {
  fetchCredentials,
  fetchNetwork,
  putCredentials,
  putNetwork,
  type CredentialInfo,
  type CredentialOptions,
  type NetworkInfo,
  type NetworkRules,
} from '../egress.ts';
import { SandboxGuest } from './sandbox-guest.ts';
import type { Transport } from '../transport/transport.ts';

/**
 * The part of {@link Sandbox} for its outbound network: the network policy, and the secrets that the host adds to
 * requests. Calls reject with {@link CoppiceError}.
 */
export abstract class SandboxEgress extends SandboxGuest {
  readonly #transport: Transport;
  readonly #path: string;

  /** Called by {@link Sandbox} only. `path` is the path of the sandbox below the base URL. */
  constructor(transport: Transport, path: string) {
    super(transport, path);
    this.#transport = transport;
    this.#path = path;
  }

  /**
   * Fetches the network policy in force, and counters of the allowed and refused traffic.
   *
   * @example
   * const { network, counters } = await sandbox.network();
   */
  async network(options: CallOptions = {}): Promise<NetworkInfo> {
    return fetchNetwork(this.#transport, this.#path, options);
  }

  /**
   * Replaces the network policy with the given rules, or with the profile of the given name. The policy is in force
   * when the call resolves and also ends open connections that it refuses. For a hibernated sandbox it is in force from
   * the resume. If the call fails, the previous policy stays in force. Rejects with code `invalid_request` for invalid
   * rules.
   *
   * @example
   * await sandbox.setNetwork({ allow: ['api.example.com', '*.example.org'] });
   *
   * @example
   * await sandbox.setNetwork('locked-down');
   */
  async setNetwork(network: NetworkRules | string, options: CallOptions = {}): Promise<NetworkInfo> {
    return putNetwork(this.#transport, { path: this.#path, network }, options);
  }

  /**
   * Lists the services whose requests the host signs with a credential. The list never includes secrets.
   *
   * @example
   * for (const { service, updatedAt } of await sandbox.credentials()) console.log(service, updatedAt);
   */
  async credentials(options: CallOptions = {}): Promise<CredentialInfo[]> {
    return fetchCredentials(this.#transport, this.#path, options);
  }

  /**
   * Replaces all credentials of the sandbox: the named ones are granted, all others are revoked. The change is in force
   * when the call resolves; for a hibernated sandbox, from the resume. Rejects with `TypeError` for an unknown option.
   *
   * @example
   * await sandbox.setCredentials({ credentials: { openai: process.env.OPENAI_API_KEY } });
   *
   * @example
   * await sandbox.setCredentials({ credentials: { openai: { secret: 'openai-production' } } });
   */
  async setCredentials(credentials: CredentialOptions, options: CallOptions = {}): Promise<CredentialInfo[]> {
    return putCredentials(this.#transport, { path: this.#path, options: credentials }, options);
  }
}
