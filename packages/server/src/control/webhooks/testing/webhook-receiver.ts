/** A real receiver of webhooks on loopback, over HTTP or HTTPS. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { readFileSync } from 'node:fs';
import type { MadeCertificate } from '../../../lib/tls/testing/certificate.ts';

export interface ReceivedWebhook {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string;
  /** Milliseconds of the process. */
  atMs: number;
}

export type AnswerWebhook = (response: ServerResponse, count: number) => void;

export class WebhookReceiver implements AsyncDisposable {
  readonly received: ReceivedWebhook[] = [];
  answer: AnswerWebhook;
  /** Connections that are open, and that ever were. */
  open = 0;
  connections = 0;
  mostOpen = 0;
  readonly #server;
  readonly #isTls: boolean;

  private constructor(answer: AnswerWebhook, certificate: MadeCertificate | undefined) {
    this.answer = answer;
    this.#isTls = certificate !== undefined;
    const take = (request: IncomingMessage, response: ServerResponse): void =>
      void this.#take(request, response).catch(() => response.destroy());
    this.#server =
      certificate === undefined
        ? createServer(take)
        : createTlsServer(
            { cert: readFileSync(certificate.certPath), key: readFileSync(certificate.keyPath) },
            take,
          );
    this.#server.on('connection', (socket: Socket) => {
      this.connections += 1;
      this.open += 1;
      this.mostOpen = Math.max(this.mostOpen, this.open);
      socket.once('close', () => {
        this.open -= 1;
      });
    });
  }

  static async start(
    answer: AnswerWebhook = (response) => response.writeHead(204).end(),
    certificate?: MadeCertificate,
  ): Promise<WebhookReceiver> {
    const receiver = new WebhookReceiver(answer, certificate);
    await new Promise<void>((resolve) => receiver.#server.listen(0, '127.0.0.1', resolve));
    return receiver;
  }

  url(host = '127.0.0.1'): string {
    const { port } = this.#server.address() as AddressInfo;
    return `${this.#isTls ? 'https' : 'http'}://${host}:${port}/hook?a=b`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const atMs = performance.now();
    const body = (await buffer(request)).toString();
    const { method = '', url = '', headers } = request;
    this.received.push({ method, url, headers: headers as Record<string, string>, body, atMs });
    this.answer(response, this.received.length);
  }
}
