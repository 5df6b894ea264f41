import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { Coppice } from '../coppice.ts';
import { Sandbox } from '../sandbox.ts';

export const TEST_KEY = `cop_live_us_${'k'.repeat(40)}`;

export interface SeenRequest {
  method: string;
  /** Path and query as sent. */
  url: string;
  headers: IncomingMessage['headers'];
  body: Buffer;
}

export type Handler = (request: SeenRequest, response: ServerResponse) => void | Promise<void>;

/** A real HTTP server on loopback, and clients of it. It reads each request whole before it answers. */
export class LoopbackServer implements AsyncDisposable {
  readonly seen: SeenRequest[] = [];
  readonly #server;

  private constructor(handler: Handler) {
    this.#server = createServer((request, response) => {
      this.#answer(request, response, handler).catch((error: unknown) => {
        response.destroy(error instanceof Error ? error : undefined);
      });
    });
  }

  static async start(handler: Handler): Promise<LoopbackServer> {
    const server = new LoopbackServer(handler);
    await new Promise<void>((resolve) => server.#server.listen(0, '127.0.0.1', resolve));
    return server;
  }

  /** A server that gives the same JSON answer to everything. */
  static async answering(status: number, body: unknown, headers: Record<string, string> = {}): Promise<LoopbackServer> {
    return LoopbackServer.start((_, response) => sendJson(response, status, body, headers));
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get last(): SeenRequest {
    const request = this.seen.at(-1);
    if (request === undefined) throw new Error('no request has come');
    return request;
  }

  client(options: { timeoutMs?: number; maxRetries?: number } = {}): Coppice {
    return new Coppice({ apiKey: TEST_KEY, baseUrl: this.url, ...options });
  }

  /** A handle on the sandbox of `wireRecord()`, made without its request being kept in `seen`. */
  async sandbox(options: { timeoutMs?: number; maxRetries?: number } = {}): Promise<Sandbox> {
    const fetch = async (): Promise<Response> => Response.json(wireRecord());
    const sandbox = await Sandbox.get(wireRecord().id, {
      apiKey: TEST_KEY,
      baseUrl: this.url,
      ...options,
      fetch: (url, init) => (this.#primed.has(init.signal) ? globalThis.fetch(url, init) : fetch()),
    });
    if (sandbox === null) throw new Error('the primed answer was not a sandbox');
    return sandbox;
  }

  readonly #primed = new Set<unknown>();

  async #answer(request: IncomingMessage, response: ServerResponse, handler: Handler): Promise<void> {
    const body = await buffer(request);
    const { method = '', url = '', headers } = request;
    const seen = { method, url, headers, body };
    this.seen.push(seen);
    await handler(seen, response);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
