import type { CallOptions } from '../transport/client-options.ts';
import type { CredentialInfo, CredentialOptions, NetworkInfo, NetworkRules } from '../egress.ts';

/**
 * The part of {@link Sandbox} for its outbound network: the network policy, and the secrets that the host adds to
 * requests. Calls reject with {@link CoppiceError}.
 */
export interface SandboxEgress {
  /**
   * Fetches the network policy in force, and counters of the allowed and refused traffic.
   *
   * @example
   * const { network, counters } = await sandbox.network();
   */
  network(options?: CallOptions): Promise<NetworkInfo>;

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
  setNetwork(network: NetworkRules | string, options?: CallOptions): Promise<NetworkInfo>;

  /**
   * Lists the services whose requests the host signs with a credential. The list never includes secrets.
   *
   * @example
   * for (const { service, updatedAt } of await sandbox.credentials()) console.log(service, updatedAt);
   */
  credentials(options?: CallOptions): Promise<CredentialInfo[]>;

  /**
   * Replaces all credentials of the sandbox: the named ones are granted, all others are revoked. The change is in force
   * when the call resolves; for a hibernated sandbox, from the resume. Rejects with `TypeError` for an unknown option.
   *
   * @example
   * await sandbox.setCredentials({ credentials: { openai: process.env.OPENAI_API_KEY ?? '' } });
   *
   * @example
   * await sandbox.setCredentials({ credentials: { openai: { secret: 'openai-production' } } });
   */
  setCredentials(credentials: CredentialOptions, options?: CallOptions): Promise<CredentialInfo[]>;
}
