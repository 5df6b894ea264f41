/** A client on a WebSocket of the API. It keeps what it received, and how it was closed. */
import { once } from 'node:events';
import { WebSocket } from 'ws';
import { API_KEY, type ControlHarness } from '../control-harness.ts';

const TIMEOUT_MS = 10_000;

export interface Closing {
  code: number;
  reason: string;
}

export class SocketClient<Message = Record<string, unknown>> {
  readonly socket: WebSocket;
  /** Text messages. */
  readonly received: Message[] = [];
  /** Binary messages, concatenated. */
  bytes = Buffer.alloc(0);
  /** Resolves when the socket is closed. Rejects with the status of a refused upgrade. */
  readonly closed: Promise<Closing>;

  constructor(harness: ControlHarness, path: string, options: { key?: string | null } = {}) {
    const { key = API_KEY } = options;
    const headers = key === null ? {} : { authorization: `Bearer ${key}` };
    const url = `${harness.address.replace('http', 'ws')}${path}`;
    this.socket = new WebSocket(url, { headers, handshakeTimeout: TIMEOUT_MS });
    const closed = Promise.withResolvers<Closing>();
    this.closed = closed.promise;
    this.closed.catch(() => undefined);
    this.socket.on('message', (data: Buffer, isBinary) => {
      if (isBinary) this.bytes = Buffer.concat([this.bytes, data]);
      else this.received.push(JSON.parse(String(data)) as Message);
    });
    this.socket.on('close', (code, reason) => closed.resolve({ code, reason: String(reason) }));
    this.socket.on('error', closed.reject);
  }

  /** Sends text and bytes unchanged, anything else as JSON. */
  async send(...messages: unknown[]): Promise<void> {
    if (this.socket.readyState === WebSocket.CONNECTING) await once(this.socket, 'open');
    for (const message of messages)
      this.socket.send(
        typeof message === 'string' || Buffer.isBuffer(message) ? message : JSON.stringify(message),
      );
  }
}
