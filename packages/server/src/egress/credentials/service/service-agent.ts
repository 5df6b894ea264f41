/**
 * Connections of one guest to one service, kept for a moment for its next request: a handshake costs two round trips. They
 * are never shared between guests, nor kept over a change of what the guest may do.
 */
import { Agent, type ClientRequestArgs, type RequestOptions } from 'node:http';
import type { Duplex } from 'node:stream';
import { connectService, type ServiceConnection, type ServiceRoute } from './connect-service.ts';

/** Below the 5 s after which the most impatient of the usual servers closes an idle connection. */
const IDLE_MS = 4_000;
const MAX_IDLE = 4;

type OnConnection = (error: Error | null, socket: Duplex) => void;

/** node:http takes the signal of a request away before it asks for a connection. */
export type ServiceRequestOptions = RequestOptions & { dialSignal: AbortSignal };

export class ServiceAgent extends Agent {
  readonly #route: ServiceRoute;
  readonly #addresses = new WeakMap<Duplex, string>();
  #isRetired = false;

  constructor(route: ServiceRoute) {
    super({ keepAlive: true, maxFreeSockets: MAX_IDLE, timeout: IDLE_MS });
    this.#route = route;
  }

  /** What is in use may finish, and nothing is kept. */
  retire(): void {
    this.#isRetired = true;
    this.dropIdle();
  }

  dropIdle(): void {
    for (const sockets of Object.values(this.freeSockets))
      for (const socket of sockets ?? []) socket.destroy();
  }

  /** As it was judged when the connection was made. */
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
      // Node's type wants a socket even beside an error.
      onConnection?.(error as Error, undefined as unknown as Duplex);
      return;
    }
    this.#addresses.set(connection.socket, connection.address);
    onConnection?.(null, connection.socket);
  }

  override keepSocketAlive(socket: Duplex): boolean {
    // Node's type says that it answers nothing; it says whether the socket may be kept.
    return !this.#isRetired && (super.keepSocketAlive(socket) as unknown as boolean);
  }
}
