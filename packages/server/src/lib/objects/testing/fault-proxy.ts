/** A proxy in front of an S3 server that disturbs requests as a test asks. */
import { once } from 'node:events';
import {
  createServer,
  request as sendRequest,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

/** Returned by a rule for one request. */
export type Fault =
  | { kind: 'delay'; durationMs: number }
  /** Answers without forwarding. */
  | { kind: 'answer'; status: number; body?: string }
  /** Forwards, and breaks the connection when the whole answer has arrived, before any of it is sent. */
  | { kind: 'lose-answer' }
  /** Sends this many bytes of the body, and then breaks the connection or keeps silent. */
  | { kind: 'break-body'; afterBytes: number; stalls?: boolean }
  /** Calls a function with the body in place of the server, and answers with 200 and its result. */
  | { kind: 'act'; act: (body: Buffer) => Promise<string> };

export type FaultRule = (request: IncomingMessage) => Fault | undefined;

export class FaultProxy implements AsyncDisposable {
  /** May be replaced at any time. */
  rule: FaultRule = () => undefined;
  /** Methods and paths of all requests. */
  readonly seen: string[] = [];
  readonly #targetPort: number;
  readonly #server: Server;
  readonly #closing = new AbortController();

  private constructor(targetPort: number) {
    this.#targetPort = targetPort;
    this.#server = createServer((request, response) => {
      this.#pass(request, response).catch(() => response.destroy());
    });
  }

  static async start(targetPort: number): Promise<FaultProxy> {
    const proxy = new FaultProxy(targetPort);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort();
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  async #pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.seen.push(`${request.method} ${request.url}`);
    const fault = this.rule(request);
    if (fault?.kind === 'delay') await delay(fault.durationMs, undefined, { signal: this.#closing.signal });
    if (fault?.kind === 'answer' || fault?.kind === 'act') {
      const body = Buffer.concat(await Array.fromAsync(request as AsyncIterable<Buffer>));
      const text = fault.kind === 'act' ? await fault.act(body) : (fault.body ?? '');
      const headers = { 'content-type': 'application/xml', etag: '"0"' };
      response.writeHead(fault.kind === 'act' ? 200 : fault.status, headers).end(text);
      return;
    }
    const answer = await this.#forward(request);
    if (fault?.kind === 'lose-answer') {
      await Array.fromAsync(answer);
      response.destroy();
      return;
    }
    response.writeHead(answer.statusCode ?? 500, answer.headers);
    if (fault?.kind === 'break-body') await sendSome(answer, response, fault);
    else answer.pipe(response);
  }

  async #forward(request: IncomingMessage): Promise<IncomingMessage> {
    const { method, url: path, headers } = request;
    const options = { host: '127.0.0.1', port: this.#targetPort, method, path, headers, agent: false };
    const upstream = sendRequest(options);
    const answered = once(upstream, 'response') as Promise<[IncomingMessage]>;
    request.pipe(upstream);
    return (await answered)[0];
  }
}

async function sendSome(
  answer: IncomingMessage,
  response: ServerResponse,
  { afterBytes, stalls = false }: { afterBytes: number; stalls?: boolean },
): Promise<void> {
  let sent = 0;
  for await (const piece of answer as AsyncIterable<Buffer>) {
    const part = piece.subarray(0, afterBytes - sent);
    sent += part.length;
    response.write(part);
    if (sent === afterBytes) break;
  }
  if (stalls) return;
  // Sent bytes must arrive before the connection breaks.
  response.write('', () => setImmediate(() => response.socket?.resetAndDestroy()));
}
