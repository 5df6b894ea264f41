import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { formatSwitch, joinSockets } from '../../../lib/streams/join-sockets.ts';
import { selectUpgradeHeaders } from '../answer/answer-headers.ts';
import type { SecretTraces } from '../request/secret-traces.ts';

export interface WebSocketOptions {
  /** `head`: bytes that arrived after the head of the request, or of the answer. */
  guest: { socket: Socket; head: Buffer };
  service: { socket: Duplex; head: Buffer };
  message: IncomingMessage;
  response: ServerResponse;
  traces: SecretTraces;
  /** Called when bytes pass in either direction. */
  onMove: () => void;
  signal: AbortSignal;
}

/** Forwards the service's 101 and then only bytes. Resolves when both sides are closed. */
export async function joinWebSocket(options: WebSocketOptions): Promise<void> {
  const { guest, service, message, response, traces, onMove, signal } = options;
  const cut = (): void => {
    guest.socket.destroy();
    service.socket.destroy();
  };
  signal.addEventListener('abort', cut, { once: true });
  try {
    const head = formatSwitch(selectUpgradeHeaders(message.rawHeaders, traces));
    response.detachSocket(guest.socket);
    guest.socket.write(head, 'latin1');
    await joinSockets({ ...guest, onData: onMove }, { ...service, onData: onMove });
  } finally {
    signal.removeEventListener('abort', cut);
  }
}
