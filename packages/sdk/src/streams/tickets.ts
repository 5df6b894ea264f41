import type { CallOptions } from '../transport/client-options.ts';
import type { Deadline } from '../transport/deadline.ts';
import type { CallRequest, Transport } from '../transport/transport.ts';
import { buildWireBody, readObject, readString } from '../transport/wire.ts';

/** Opens one WebSocket of a sandbox, once, in place of the API key. */
export interface Ticket {
  ticket: string;
  /** ISO 8601 UTC. */
  expiresAt: string;
}

/** What kind of ticket. */
export interface TicketOptions extends CallOptions {
  /** Seconds for which it can be used, 1–300. Default 60. */
  expiresIn?: number | undefined;
}

const TICKET_FIELDS = { expiresIn: 'expires_in' } as const satisfies Record<
  Exclude<keyof TicketOptions, 'signal'>,
  string
>;

export async function createTicket(
  transport: Transport,
  path: string,
  options: TicketOptions,
): Promise<Ticket> {
  return (await transport.callJson(buildTicketRequest(path, options), parseTicket)).value;
}

/** The ticket of a WebSocket that is being opened, under the deadline of the opening. */
export async function fetchTicket(
  transport: Transport,
  path: string,
  call: { deadline: Deadline; signal: AbortSignal | undefined },
): Promise<string> {
  const request = buildTicketRequest(path, { signal: call.signal });
  return (await transport.callJsonWithin(request, call.deadline, parseTicket)).value.ticket;
}

/** A ticket too many is harmless: it expires. So this may be tried again. */
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
