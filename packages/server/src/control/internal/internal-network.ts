/** Connects a control with runners of other machines and with other controls, and listens for them. */
import { X509Certificate } from 'node:crypto';
import type { PeerCertificate } from 'node:tls';
import type { Logger } from 'pino';
import { findControlId, toInternalContext } from '../../lib/tls/control-role.ts';
import { ensureAuthority } from '../authority/authority.ts';
import { ControlIdentity } from '../authority/control-identity.ts';
import { joinRunner } from '../authority/join-runner.ts';
import type { Database } from '../db/database.ts';
import type { JoinedRunner } from '../ownership/runner-claims.ts';
import type { Owner } from '../ownership/owners.ts';
import { invariant } from '../../lib/invariant.ts';
import { parseAddress } from '../../lib/protocol/join-protocol.ts';
import { RunnerClient } from '../placement/runner-client.ts';
import { RunnerConnection } from '../placement/runner-connection.ts';
import type { OpenedClient } from '../sandbox/runner-fleet.ts';
import type { SecretBox } from '../secrets/secret-box.ts';
import { InternalListener, type PeerRequests } from './internal-listener.ts';

export interface InternalNetworkParts {
  db: Database;
  secrets: SecretBox;
  /** Id of this control. */
  controlId: string;
  region: string;
  log: Logger;
}

export class InternalNetwork {
  readonly #parts: InternalNetworkParts;
  readonly #identity: ControlIdentity;

  private constructor(parts: InternalNetworkParts, identity: ControlIdentity) {
    this.#parts = parts;
    this.#identity = identity;
  }

  /** Makes a new key for this control, with a certificate of the authority, which the first one makes. */
  static async open(parts: InternalNetworkParts): Promise<InternalNetwork> {
    const { db, secrets, controlId } = parts;
    return new InternalNetwork(parts, new ControlIdentity(await ensureAuthority(db, secrets), controlId));
  }

  /** Opens a client for a runner of another machine. It connects only to a peer with the key of that runner. */
  connect({ address, fingerprint }: JoinedRunner): OpenedClient {
    const credentials = () => this.#identity.credentials;
    const place = parseAddress(address);
    invariant(place, 'a runner joins with host:port');
    const to = { kind: 'network', ...place, fingerprint, credentials } as const;
    const connection = new RunnerConnection(to, this.#parts.log);
    return { client: new RunnerClient(connection), [Symbol.dispose]: () => connection[Symbol.dispose]() };
  }

  /** Returns options of TLS with which only this control is reached. */
  tlsTo({ id }: Owner): object {
    return {
      ...toInternalContext(this.#identity.credentials),
      // Node calls it after it has verified the certificate. Its name is no host name.
      checkServerIdentity: (_host: string, { raw }: PeerCertificate) =>
        findControlId(new X509Certificate(raw)) === id ? undefined : new Error(`the peer is not ${id}`),
    };
  }

  async listen(listen: { host: string; port: number }, peers: PeerRequests): Promise<InternalListener> {
    const { db, region, log } = this.#parts;
    const listener = await InternalListener.listen({
      listen,
      credentials: () => this.#identity.chain,
      join: (request) => joinRunner({ db, region, identity: this.#identity, log }, request),
      peers,
      log,
    });
    log.info({ host: listen.host, port: listener.port }, 'control listens for runners and other controls');
    return listener;
  }
}
