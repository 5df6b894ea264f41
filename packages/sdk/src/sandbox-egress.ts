import type { CallOptions } from './transport/client-options.ts';
import {
  fetchCredentials,
  fetchNetwork,
  putCredentials,
  putNetwork,
  type CredentialInfo,
  type CredentialOptions,
  type NetworkInfo,
  type NetworkRules,
} from './egress.ts';
import { SandboxGuest } from './sandbox-guest.ts';
import type { Transport } from './transport/transport.ts';

/** The way out of a sandbox: its network policy, and the secrets that the host adds to its requests. */
export abstract class SandboxEgress extends SandboxGuest {
  readonly #transport: Transport;
  readonly #path: string;

  /** Made as part of a sandbox; `path` is its address below the base URL. */
  constructor(transport: Transport, path: string) {
    super(transport, path);
    this.#transport = transport;
    this.#path = path;
  }

  /**
   * The network policy that is in force, and what it has let pass and refused.
   *
   * @example
   * const { network, counters } = await sandbox.network();
   */
  async network(options: CallOptions = {}): Promise<NetworkInfo> {
    return fetchNetwork(this.#transport, this.#path, options);
  }

  /**
   * Changes the network policy, to rules or to a profile of this name. It is in force when this resolves, for connections
   * that are open, too; of a hibernated sandbox from its resume on.
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
   * Lists the services whose requests the host signs. Secrets are never shown.
   *
   * @example
   * for (const { service, updatedAt } of await sandbox.credentials()) console.log(service, updatedAt);
   */
  async credentials(options: CallOptions = {}): Promise<CredentialInfo[]> {
    return fetchCredentials(this.#transport, this.#path, options);
  }

  /**
   * Replaces the credentials: what is named is granted from now on, all else is taken back.
   *
   * @example
   * await sandbox.setCredentials({ credentials: { openai: process.env.OPENAI_API_KEY } });
   */
  async setCredentials(credentials: CredentialOptions, options: CallOptions = {}): Promise<CredentialInfo[]> {
    return putCredentials(this.#transport, { path: this.#path, options: credentials }, options);
  }
}
