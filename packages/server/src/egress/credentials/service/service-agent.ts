/**
 * Keeps connections of one guest to one service for a short time for its next request, because a handshake costs two
 * round trips. They are never shared between guests, and never kept after a change of the guest's rights.
 */
import { Agent, type ClientRequestArgs, type RequestOptions } from 'node:http';
import type { Duplex } from 'node:stream';
import { connectService, type ServiceConnection, type ServiceRoute } from './connect-service.ts';

/** Below 5 s: of the usual servers, the fastest closes an idle connection after 5 s. */
const IDLE_MS = 4_000;
const MAX_IDLE = 4;

type OnConnection = (error: Error | null, socket: Duplex) => void;

/** Adds a signal for dialling, because node:http removes `signal` before it requests a connection. */
export type ServiceRequestOptions = RequestOptions & { dialSignal: AbortSignal };

/** The agent of one guest and one service. */
export class ServiceAgent extends Agent {
  readonly #route: ServiceRoute;
  readonly #addresses = new WeakMap<Duplex, string>();
  #isRetired = false;

  constructor(route: ServiceRoute) {
    super({ keepAlive: true, maxFreeSockets: MAX_IDLE, timeout: IDLE_MS });
    this.#route = route;
  }

  /** Stops keeping connections. Those in use may finish. */
  retire(): void {
    this.#isRetired = true;
    this.dropIdle();
  }

  dropIdle(): void {
    for (const sockets of Object.values(this.freeSockets))
      for (const socket of sockets ?? []) socket.destroy();
  }

  /** Returns the address that was judged when the connection was opened. */
  addressOf(socket: Duplex): string | undefined {
    return this.#addresses.get(socket);
  }

  override createConnection(options: ClientRequestArgs, onConnection?: OnConnection): undefined {
    const { dialSignal } = options as Partial<ServiceRequestOptions>;
    void this.#connect(dialSignal, onConnection);
    return undefined;
  }

  async #connect(signal: AbortSignal | undefined, onConnection: OnConnection | undefined): Promise<void> {
    let connection: ServiceConnection;
    try {
      connection = await connectService(this.#route, signal);
    } catch (error) {
      // Node's type requires a socket even with an error.
      onConnection?.(error as Error, undefined as unknown as Duplex);
      return;
    }
    this.#addresses.set(connection.socket, connection.address);
    onConnection?.(null, connection.socket);
  }

  override keepSocketAlive(socket: Duplex): boolean {
    // Node's type declares no result, but the method returns whether the socket may be kept.
    return !this.#isRetired && (super.keepSocketAlive(socket) as unknown as boolean);
  }
}
