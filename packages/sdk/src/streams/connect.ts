import { Deadline } from '../transport/deadline.ts';
import { CoppiceError } from '../transport/errors.ts';
import { StreamConnection, type StreamProtocol } from './stream-connection.ts';
import { fetchTicket } from './tickets.ts';
import { labelOf, type Transport } from '../transport/transport.ts';
import { getWebSocket } from './web-socket.ts';
import { buildQuery } from '../transport/wire.ts';

/** The service sends a ping every 20 s. A single large message may take longer than that on a slow line. */
const PING_SILENCE_MS = 90_000;

interface ConnectRequest<Item, Final> {
  /** Path of the sandbox. */
  path: string;
  /** Path of the endpoint below that of the sandbox. */
  endpoint: string;
  query?: Readonly<Record<string, string | number | undefined>>;
  /** Aborts the connection at any time, not only while it opens. */
  signal: AbortSignal | undefined;
  parse: StreamProtocol<Item, Final>['parse'];
  silenceMs?: number | undefined;
}

/**
 * Opens a WebSocket of a sandbox. A standard WebSocket cannot send headers, so the client fetches a ticket first, which
 * works once. An error such as `forbidden` or `not_found` is the answer to that request: a WebSocket does not report
 * the reason of a refusal.
 */
export async function connect<Item, Final>(
  transport: Transport,
  request: ConnectRequest<Item, Final>,
): Promise<StreamConnection<Item, Final>> {
  const { parse, silenceMs, signal } = request;
  const path = `${request.path}${request.endpoint}`;
  const label = labelOf({ method: 'GET', path });
  const WebSocket = await getWebSocket(transport.webSocket);
  const deadline = new Deadline(label, transport.timeoutMs, signal);
  try {
    const ticket = await fetchTicket(transport, request.path, { deadline, signal });
    // Some runtimes include the address in the message of an error.
    const redact = (text: string): string => text.replaceAll(ticket, '…');
    const url = `${transport.baseUrl.replace(/^http/, 'ws')}${path}${buildQuery({ ...request.query, ticket })}`;
    const protocol = {
      parse,
      silenceMs,
      pingSilenceMs: PING_SILENCE_MS,
      stallMs: silenceMs ?? transport.timeoutMs,
    };
    const socket = construct(() => new WebSocket(url), { label, redact });
    const connection = new StreamConnection(socket, protocol, { label, deadline, redact });
    await connection.opened();
    return connection;
  } catch (error) {
    deadline.end();
    throw error;
  }
}

/** Constructs the socket. The constructor throws, for example, for a `ws:` address on a page loaded over HTTPS. */
function construct<Socket>(
  make: () => Socket,
  { label, redact }: { label: string; redact: (text: string) => string },
): Socket {
  try {
    return make();
  } catch (error) {
    const why = redact(error instanceof Error ? error.message : String(error));
    throw new CoppiceError(`${label}: no connection to the service: ${why}`, {
      status: 0,
      code: 'connection_failed',
    });
  }
}
