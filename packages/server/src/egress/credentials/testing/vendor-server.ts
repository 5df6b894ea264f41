/** TLS servers on loopback ports for the names of services, and an upstream that dials them. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { RequestListener } from 'node:http';
import { createServer, type Server } from 'node:https';
import { connect, type AddressInfo } from 'node:net';
import { createSecureContext, type SecureContext } from 'node:tls';
import { TestAuthority, type CertificateOptions } from '../../../lib/tls/testing/certificate.ts';
import type { Guest } from '../../guest-table.ts';
import { UnreachableError, type Dialled, type DialTarget, type Upstream } from '../../upstream/upstream.ts';

export class VendorNetwork implements Upstream, AsyncDisposable {
  readonly #authority = new TestAuthority();
  readonly #servers: Server[] = [];
  readonly #ports = new Map<string, number>();
  /** Names in the order in which they were dialled. */
  readonly dialled: string[] = [];
  readonly trust: SecureContext;
  /** Certificate of the authority. */
  readonly ca: string;
  /** The address reported for every name, for the policy. It does not affect where the connection goes. */
  address = '203.0.113.10';

  constructor() {
    this.ca = readFileSync(this.#authority.certPath, 'utf8');
    this.trust = createSecureContext({ ca: this.ca });
  }

  /** Starts a server with a certificate for `name`. `certificate` overrides its options. */
  async serve(name: string, handler: RequestListener, certificate: CertificateOptions = {}): Promise<Server> {
    const { certPath, keyPath } = this.#authority.issue(name, {
      subjectAltName: `DNS:${name}`,
      ...certificate,
    });
    const server = createServer({ cert: readFileSync(certPath), key: readFileSync(keyPath) }, handler);
    await this.listen(name, server);
    return server;
  }

  async listen(name: string, server: Server): Promise<void> {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    this.#servers.push(server);
    this.#ports.set(name, (server.address() as AddressInfo).port);
  }

  async resolveName(): Promise<string[]> {
    return [this.address];
  }

  portOf(name: string): number {
    const port = this.#ports.get(name);
    if (port === undefined) throw new UnreachableError(`nothing has the name ${name}`);
    return port;
  }

  async dial(_guest: Guest, { name = '' }: DialTarget, signal?: AbortSignal): Promise<Dialled> {
    this.dialled.push(name);
    const socket = connect({
      port: this.portOf(name),
      host: '127.0.0.1',
      noDelay: true,
      allowHalfOpen: true,
    });
    socket.pause();
    try {
      await once(socket, 'connect', { signal });
    } catch (error) {
      socket.destroy();
      throw error;
    }
    return { socket, address: this.address };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#authority[Symbol.dispose]();
    for (const server of this.#servers) {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    }
  }
}
