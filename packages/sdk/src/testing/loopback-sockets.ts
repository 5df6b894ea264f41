import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { WebSocketServer, type WebSocket } from 'ws';
import type { ClientOptions } from '../transport/client-options.ts';
import type { Sandbox } from '../sandbox/sandbox.ts';
import { LoopbackServer, SANDBOX_ID, sendJson, type Handler, type SeenRequest } from './loopback-server.ts';
import { within } from './within.ts';

const DEADLINE_MS = 10_000;

class ClientLeftError extends Error {}

/** The service's end of one WebSocket. */
export class ServicePeer {
  readonly socket: WebSocket;
  readonly closed: Promise<number>;
  readonly #messages: unknown[] = [];
  #wake = (): void => undefined;

  constructor(socket: WebSocket) {
    this.socket = socket;
    this.closed = once(socket, 'close').then(([code]) => code as number);
    socket.on('message', (data: Buffer, isBinary: boolean) => {
      this.#messages.push(isBinary ? data : (JSON.parse(data.toString()) as unknown));
      this.#wake();
    });
  }

  /** Returns the next message: the parsed JSON of a text message, else bytes. */
  async next(): Promise<unknown> {
    if (this.#messages.length === 0) {
      const come = new Promise<void>((resolve) => (this.#wake = resolve));
      await within(DEADLINE_MS, Promise.race([come, this.closed]), 'the client sent no message');
      if (this.#messages.length === 0) throw new ClientLeftError('the client closed the connection');
    }
    return this.#messages.shift();
  }

  send(...frames: (object | Buffer)[]): void {
    for (const frame of frames) this.socket.send(Buffer.isBuffer(frame) ? frame : JSON.stringify(frame));
  }

  /** Sends the frames, then closes as the service does. */
  end(...frames: object[]): void {
    this.send(...frames);
    this.socket.close(1000);
  }

  /** Waits until the client closes the connection, and returns its close code. */
  async left(): Promise<number> {
    return within(DEADLINE_MS, this.closed, 'the client did not close the connection');
  }
}

interface OtherAnswers {
  /** Answers requests for anything but a ticket. Default: 404. */
  answer?: Handler;
  /** Called before a ticket is issued. */
  beforeTicket?: () => Promise<void>;
}

/** A service on loopback that issues tickets and accepts WebSockets, one for each ticket. */
export class LoopbackSockets implements AsyncDisposable {
  /** Path and query of each requested WebSocket. */
  readonly upgrades: string[] = [];
  readonly #tickets = new Set<string>();
  readonly #sockets = new WebSocketServer({ noServer: true });
  readonly #server: LoopbackServer;
  readonly #others: OtherAnswers;

  private constructor(server: LoopbackServer, others: OtherAnswers) {
    this.#server = server;
    this.#others = others;
  }

  static async start(
    serve: (peer: ServicePeer) => void | Promise<void>,
    others: OtherAnswers = {},
  ): Promise<LoopbackSockets> {
    const server = await LoopbackServer.start((request, response) => service.#answer(request, response));
    const service = new LoopbackSockets(server, others);
    server.onUpgrade((request, socket, head) => service.#upgrade(request, socket, head));
    service.#sockets.on('connection', (socket) => void service.#serve(new ServicePeer(socket), serve));
    return service;
  }

  get url(): string {
    return this.#server.url;
  }

  get seen(): SeenRequest[] {
    return this.#server.seen;
  }

  sandbox(options: Pick<ClientOptions, 'timeoutMs' | 'maxRetries' | 'WebSocket'> = {}): Sandbox {
    return this.#server.sandbox(options);
  }

  /** Runs `serve` until it ends or the client closes the connection. */
  async #serve(peer: ServicePeer, serve: (peer: ServicePeer) => void | Promise<void>): Promise<void> {
    try {
      await serve(peer);
    } catch (error) {
      if (!(error instanceof ClientLeftError)) throw error;
    }
  }

  async #answer(request: SeenRequest, response: ServerResponse): Promise<void> {
    const { answer, beforeTicket } = this.#others;
    if (request.url !== `/v1/runs/${SANDBOX_ID}/tickets`) {
      if (answer === undefined) sendJson(response, { status: 404, body: {} });
      else await answer(request, response);
      return;
    }
    const ticket = `tick et&${this.seen.length}`;
    await beforeTicket?.();
    this.#tickets.add(ticket);
    sendJson(response, { status: 201, body: { ticket, expires_at: '2026-11-21T06:31:00.000Z' } });
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const { url = '' } = request;
    this.upgrades.push(url);
    const ticket = new URL(url, 'http://x').searchParams.get('ticket') ?? '';
    if (this.#tickets.delete(ticket)) {
      this.#sockets.handleUpgrade(request, socket, head, (client) => {
        this.#sockets.emit('connection', client, request);
      });
    } else socket.end('HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const client of this.#sockets.clients) client.terminate();
    await this.#server[Symbol.asyncDispose]();
  }
}
