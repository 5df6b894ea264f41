/**
 * Connections to services in guests, made through the runner and briefly kept for the next request to the same port.
 */
import type { ClientHttp2Stream } from 'node:http2';
import { Agent, type AgentOptions, type ClientRequest, type ClientRequestArgs } from 'node:http';
import type { Duplex } from 'node:stream';
import { TunnelSocket } from './tunnel-socket.ts';
import type { RunnerClient } from '../placement/runner-client.ts';

/** Returns the runner of a sandbox. Throws `unavailable` if it is not one of this control's. */
export type RunnerOf = (sandboxId: string) => Pick<RunnerClient, 'openTunnel'>;

/** Below 2 s, the shortest time after which common servers close an idle connection. */
const IDLE_MS = 1_500;
const MAX_IDLE_EACH = 16;
/** Limit of connections to one port; further requests wait in a queue. */
const MAX_CONNECTIONS_EACH = 512;

/** A port of a sandbox. */
export interface GuestPort {
  /** The sandbox's id. */
  id: string;
  port: number;
}

type OnConnection = (error: Error | null, socket: Duplex) => void;

export class PortAgent extends Agent {
  readonly #runnerOf: RunnerOf;

  constructor(runnerOf: RunnerOf, options: AgentOptions = {}) {
    super({ keepAlive: true, maxSockets: MAX_CONNECTIONS_EACH, maxFreeSockets: MAX_IDLE_EACH, ...options });
    this.#runnerOf = runnerOf;
  }

  /**
   * Makes a connection for each request: for requests that must not be sent again if a kept connection is found closed.
   */
  static withoutReuse(runnerOf: RunnerOf): PortAgent {
    return new PortAgent(runnerOf, { keepAlive: false, maxSockets: Infinity });
  }

  override createConnection(options: ClientRequestArgs, onConnection?: OnConnection): undefined {
    const { id, port } = toGuestPort(options);
    this.#open(id, port).then(
      (stream) => onConnection?.(null, new TunnelSocket(stream)),
      // Node's type requires a socket even with an error.
      (error: unknown) => onConnection?.(error as Error, undefined as unknown as Duplex),
    );
    return undefined;
  }

  async #open(id: string, port: number): Promise<ClientHttp2Stream> {
    return this.#runnerOf(id).openTunnel(id, port);
  }

  override getName(options?: ClientRequestArgs): string {
    const { id, port } = toGuestPort(options ?? {});
    return `${id}:${port}`;
  }

  override keepSocketAlive(socket: Duplex): boolean {
    if (!(socket instanceof TunnelSocket) || socket.readableEnded || socket.destroyed) return false;
    socket.rest(IDLE_MS);
    return true;
  }

  override reuseSocket(socket: Duplex, request: ClientRequest): void {
    request.reusedSocket = true;
    if (socket instanceof TunnelSocket) socket.wake();
  }
}

/** Returns the target for node:http: the sandbox's id is in the place of a host name. */
export function toRequestTarget({ id, port }: GuestPort): { host: string; port: number } {
  return { host: id, port };
}

function toGuestPort({ host, port }: ClientRequestArgs): GuestPort {
  return { id: host ?? '', port: Number(port) };
}
