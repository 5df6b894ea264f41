import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { resolveClientOptions, type ClientOptions } from '../transport/client-options.ts';
import { Coppice } from '../coppice.ts';
import { parseSandboxInfo } from '../sandbox/sandbox-record.ts';
import { Sandbox } from '../sandbox/sandbox.ts';
import { Transport } from '../transport/transport.ts';

export const TEST_KEY = `cop_live_us_${'k'.repeat(40)}`;
export const SANDBOX_ID = 'run0123456789abcdef0123';

/** A request that the server received. */
export interface SeenRequest {
  method: string;
  /** Path and query as sent. */
  url: string;
  headers: IncomingMessage['headers'];
  body: Buffer;
}

export type Handler = (request: SeenRequest, response: ServerResponse) => void | Promise<void>;

type TestClientOptions = Pick<ClientOptions, 'timeoutMs' | 'maxRetries' | 'WebSocket'>;

/** A real HTTP server on loopback, and clients of it. */
export class LoopbackServer implements AsyncDisposable {
  readonly seen: SeenRequest[] = [];
  readonly #server;

  private constructor(listener: RequestListener) {
    this.#server = createServer(listener);
  }

  /** Starts a server that passes requests to `listener` unchanged and records none. */
  static async raw(listener: RequestListener): Promise<LoopbackServer> {
    const server = new LoopbackServer(listener);
    await new Promise<void>((resolve) => server.#server.listen(0, '127.0.0.1', resolve));
    return server;
  }

  /** Starts a server that reads each request completely and records it in `seen` before it is answered. */
  static async start(handler: Handler): Promise<LoopbackServer> {
    const server = await LoopbackServer.raw((request, response) => {
      server.#answer(request, response, handler).catch(() => response.destroy());
    });
    return server;
  }

  /** Starts a server that gives the same JSON answer to every request. */
  static async answering(
    status: number,
    body: unknown,
    headers: Record<string, string> = {},
  ): Promise<LoopbackServer> {
    return LoopbackServer.start((_, response) => sendJson(response, { status, body, headers }));
  }

  /** Passes upgrade requests to `listener`, which must close their connections. */
  onUpgrade(listener: (request: IncomingMessage, socket: Duplex, head: Buffer) => void): void {
    this.#server.on('upgrade', listener);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get last(): SeenRequest {
    const request = this.seen.at(-1);
    if (request === undefined) throw new Error('the server received no request');
    return request;
  }

  get lastJson(): unknown {
    return JSON.parse(this.last.body.toString());
  }

  client(options: TestClientOptions = {}): Coppice {
    return new Coppice({ apiKey: TEST_KEY, baseUrl: this.url, ...options });
  }

  /** Returns a handle on the sandbox of `wireRecord()` without a request. */
  sandbox(options: TestClientOptions = {}): Sandbox {
    const transport = new Transport(
      resolveClientOptions({ apiKey: TEST_KEY, baseUrl: this.url, ...options }),
    );
    return new Sandbox(transport, parseSandboxInfo(wireRecord()));
  }

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

export function sendJson(
  response: ServerResponse,
  answer: { status?: number; body: unknown; headers?: Record<string, string> },
): void {
  response.writeHead(answer.status ?? 200, { 'content-type': 'application/json', ...answer.headers });
  response.end(typeof answer.body === 'string' ? answer.body : JSON.stringify(answer.body));
}

export function errorBody(code: string, message: string): { error: Record<string, string> } {
  return { error: { code, message, request_id: 'req0a1b' } };
}

/** Returns a sandbox record in its wire form. */
export function wireRecord(changes: Record<string, unknown> = {}): { id: string } & Record<string, unknown> {
  return {
    id: SANDBOX_ID,
    status: 'running',
    status_reason: null,
    operation: null,
    image: 'docker.io/library/node:22-slim@sha256:00',
    region: 'us',
    vcpus: 2,
    mem_mib: 2048,
    disk_mib: 4096,
    timeout: 300,
    max_lifetime: null,
    expires_at: '2026-11-21T06:35:00.000Z',
    auto_hibernate: false,
    labels: {},
    parent_id: null,
    create_ms: 81.5,
    created_at: '2026-11-21T06:30:00.000Z',
    hibernated_at: null,
    ended_at: null,
    ...changes,
  };
}

/** Returns the URL of a loopback port on which no process listens. */
export async function findRefusingUrl(): Promise<string> {
  const server = await LoopbackServer.raw(() => undefined);
  const { url } = server;
  await server[Symbol.asyncDispose]();
  return url;
}
