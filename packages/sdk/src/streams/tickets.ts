import type { CallOptions } from '../transport/client-options.ts';
import type { Deadline } from '../transport/deadline.ts';
import type { CallRequest, Transport } from '../transport/transport.ts';
import { buildWireBody, readObject, readString } from '../transport/wire.ts';

/** A ticket that opens one WebSocket of a sandbox, once, instead of the API key. */
export interface Ticket {
  /** Value of the query parameter `ticket`. */
  ticket: string;
  /** Time when the ticket expires, ISO 8601 UTC. */
  expiresAt: string;
}

/** Options of `sandbox.createTicket()`. */
export interface TicketOptions extends CallOptions {
  /** Seconds until the ticket expires, 1–300. Default 60. */
  expiresIn?: number | undefined;
}

const TICKET_FIELDS = { expiresIn: 'expires_in' } as const satisfies Record<
  Exclude<keyof TicketOptions, 'signal'>,
  string
>;

/** Creates a ticket for the sandbox at `path`. Throws `TypeError` for an unknown option. */
export async function createTicket(
  transport: Transport,
  path: string,
  options: TicketOptions,
): Promise<Ticket> {
  return (await transport.callJson(buildTicketRequest(path, options), parseTicket)).value;
}

/** Fetches the ticket of a WebSocket, under the deadline for opening it. */
export async function fetchTicket(
  transport: Transport,
  path: string,
  call: { deadline: Deadline; signal: AbortSignal | undefined },
): Promise<string> {
  const request = buildTicketRequest(path, { signal: call.signal });
  return (await transport.callJsonWithin(request, call.deadline, parseTicket)).value.ticket;
}

/** Returns the request for a ticket. It may be retried: a surplus ticket is harmless because it expires. */
function buildTicketRequest(path: string, { signal, ...options }: TicketOptions): CallRequest {
  return {
    method: 'POST',
    path: `${path}/tickets`,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(buildWireBody(options, TICKET_FIELDS, 'createTicket')),
    idempotent: true,
    signal,
  };
}

function parseTicket(value: unknown): Ticket {
  const record = readObject(value, 'the ticket');
  return { ticket: readString(record, 'ticket'), expiresAt: readString(record, 'expires_at') };
}
