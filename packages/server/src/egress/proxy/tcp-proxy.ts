/**
 * The listener to which the ruleset redirects every TCP connection of a guest whose policy the kernel cannot enforce.
 * The source address, which the ruleset has checked, identifies the guest. A guest that the runner has not registered
 * gets a reset.
 */
import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import type { Logger } from 'pino';
import type { Guest, GuestTable } from '../guest-table.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { Flow } from './flow.ts';
import type { Endpoint } from './original-destination.ts';
import { resetSocket } from './relay.ts';

/**
 * Maximum number of open and opening flows of a guest. It is below the limit of the ruleset, so that refusals are
 * recorded.
 */
const MAX_FLOWS_PER_GUEST = 2048;
const BACKLOG = 4096;
/** Connections beyond the limits whose refusal is being noted. */
const MAX_REFUSED = 256;
/** Before the verdict, at most this many bytes and one chunk are read from a guest. */
const READ_AHEAD_BYTES = 16 * 1024;

export interface TcpProxyOptions {
  /** Address to listen on. */
  address: string;
  guests: GuestTable;
  upstream: Upstream;
  log: Logger;
  /** Maximum number of flows of all guests. Each flow takes two descriptors. */
  maxFlows: number;
  maxFlowsPerGuest?: number;
  findDestination: (socket: Socket) => Promise<Endpoint | undefined>;
}

/** The listener described above. */
export class TcpProxy implements AsyncDisposable {
  readonly #options: TcpProxyOptions;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #flowCounts = new Map<Guest, number>();
  readonly #refused = new Set<Socket>();

  private constructor(options: TcpProxyOptions) {
    this.#options = options;
    this.#server = createServer(
      { allowHalfOpen: true, noDelay: true, pauseOnConnect: true, highWaterMark: READ_AHEAD_BYTES },
      (socket) => void this.#serve(socket),
    );
  }

  static async listen(options: TcpProxyOptions): Promise<TcpProxy> {
    const proxy = new TcpProxy(options);
    const server = proxy.#server;
    server.listen({ host: options.address, port: 0, exclusive: true, backlog: BACKLOG });
    await once(server, 'listening');
    server.on('error', (error) => options.log.warn({ err: error }, 'TCP proxy: listener'));
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const socket of [...this.#sockets, ...this.#refused]) resetSocket(socket);
    await closed;
  }

  /** Serves a connection. An error that it throws is a fault of this process and ends it. */
  async #serve(socket: Socket): Promise<void> {
    const { guests, upstream } = this.#options;
    // An error of a connection ends only that connection: a close follows.
    socket.on('error', () => undefined);
    const address = socket.remoteAddress ?? '';
    const guest = guests.findByAddress(address);
    if (guest === undefined) return resetSocket(socket);
    if (!this.#hasRoom(guest)) return this.#refuse(guest, socket);
    this.#sockets.add(socket);
    this.#flowCounts.set(guest, this.#flowCountOf(guest) + 1);
    try {
      const original = await this.#findDestination(socket);
      // The guest may have been forgotten meanwhile.
      if (original === undefined || guests.findByAddress(address) !== guest) return resetSocket(socket);
      await new Flow({ guest, socket, original, upstream }).run();
    } finally {
      this.#sockets.delete(socket);
      const left = this.#flowCountOf(guest) - 1;
      if (left > 0) this.#flowCounts.set(guest, left);
      else this.#flowCounts.delete(guest);
    }
  }

  /** Notes the refusal, unless as many others wait for that: then the connection only ends. */
  async #refuse(guest: Guest, socket: Socket): Promise<void> {
    if (this.#refused.size >= MAX_REFUSED) return resetSocket(socket);
    this.#refused.add(socket);
    try {
      const original = await this.#findDestination(socket);
      if (original === undefined) return resetSocket(socket);
      refuseCrowd(guest, socket, original);
    } finally {
      this.#refused.delete(socket);
    }
  }

  /** A failed lookup ends only this connection. If hostctl is gone, this process ends (egress.ts). */
  async #findDestination(socket: Socket): Promise<Endpoint | undefined> {
    try {
      return await this.#options.findDestination(socket);
    } catch (error) {
      this.#options.log.warn({ err: error }, 'the destination of a connection was not found');
      return undefined;
    }
  }

  #hasRoom(guest: Guest): boolean {
    const { maxFlows, maxFlowsPerGuest = MAX_FLOWS_PER_GUEST } = this.#options;
    return this.#sockets.size < maxFlows && this.#flowCountOf(guest) < maxFlowsPerGuest;
  }

  #flowCountOf(guest: Guest): number {
    return this.#flowCounts.get(guest) ?? 0;
  }
}

function refuseCrowd(guest: Guest, socket: Socket, { address, port }: Endpoint): void {
  guest.count('connections_blocked');
  guest.note({
    event: 'network.blocked',
    ts: new Date().toISOString(),
    data: { ip: address, port, reason: 'too_many_connections', count: 1 },
  });
  resetSocket(socket);
}
