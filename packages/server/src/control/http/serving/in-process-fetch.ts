/**
 * `fetch` that reaches the API of this process without the network: real HTTP over a pair of streams in memory. A call
 * passes every hook, as from any client, with back-pressure and with its end when the caller leaves.
 *
 *   client ─► fetch ─► node:http ═══ pair of streams ═══ node:http ─► Fastify
 */
import { createServer, request as sendRequest, type IncomingMessage, type RequestListener } from 'node:http';
import { duplexPair, Readable, type Duplex } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import { answerBrokenHttp } from '../answers/broken-http.ts';

/** The client for which the calls are made, as the API is to see it. */
export interface CallOrigin {
  clientAddress: string;
  /** Joins the log lines of all calls with those of the client's request. */
  requestId: string;
  /** Runs the creates of the calls. Without it, sandboxes of a caller that has left stay. */
  create?: CreateForCall;
}

/** Runs a create. `ids`: of the sandboxes that it may make. */
export type CreateForCall = <T>(ids: readonly string[], create: () => Promise<T>) => Promise<T>;

export type InProcessFetch = (url: string, init: RequestInit) => Promise<Response>;

/** Statuses whose answers have no body, not even an empty one. */
const WITHOUT_BODY = new Set([204, 205, 304]);

/** By the service's end of a connection. */
const origins = new WeakMap<Duplex, CallOrigin>();

/** Runs a create for the request that asks for it: of a call within the process, its caller's way. */
export function createFor<T>(
  { raw }: Pick<FastifyRequest, 'raw'>,
  ids: readonly string[],
  create: () => Promise<T>,
): Promise<T> {
  const run = origins.get(raw.socket)?.create;
  return run === undefined ? create() : run(ids, create);
}

export class InProcessApi {
  readonly #server;

  /** `listener` handles a request as if it came from a socket. */
  constructor(listener: RequestListener) {
    // It never listens: connections come from this process only. Commands and their answers may take hours.
    this.#server = createServer({ requestTimeout: 0 }, listener).on('clientError', answerBrokenHttp);
  }

  /** Returns a `fetch` whose calls are made for one client. Of the URL only path, query and host count. */
  buildFetch(origin: CallOrigin): InProcessFetch {
    return async (url, init) => {
      const { pathname, search, host } = new URL(url);
      // The client's bodies are in memory already. A whole one has a length, which the API reports in its errors.
      const body = init.body == null ? undefined : Buffer.from(await new Response(init.body).arrayBuffer());
      const headers = {
        ...Object.fromEntries(new Headers(init.headers)),
        host,
        'x-request-id': origin.requestId,
        ...(body === undefined ? {} : { 'content-length': body.length }),
      };
      const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
      const call = sendRequest({
        method: init.method,
        path: `${pathname}${search}`,
        headers,
        createConnection: () => this.#connect(origin),
        ...(init.signal == null ? {} : { signal: init.signal }),
      });
      call.once('response', resolve).once('error', reject).end(body);
      return toResponse(await promise);
    };
  }

  #connect(origin: CallOrigin): Duplex {
    const [client, server] = duplexPair();
    origins.set(server, origin);
    Object.defineProperties(server, {
      // As for a socket: the API takes the address for limits and logs.
      remoteAddress: { value: origin.clientAddress },
      // The reader is in this process and ends with the call that it serves: it needs no timeout of its own.
      setTimeout: { value: () => server },
    });
    // One end of a pair does not notice that the other was destroyed.
    client.once('close', () => server.destroy());
    server.once('close', () => client.destroy());
    this.#server.emit('connection', server);
    return client;
  }
}

function toResponse(message: IncomingMessage): Response {
  const status = message.statusCode ?? 500;
  const headers = new Headers();
  for (const [name, values] of Object.entries(message.headersDistinct))
    for (const value of values ?? []) headers.append(name, value);
  if (WITHOUT_BODY.has(status)) {
    message.resume();
    return new Response(null, { status, headers });
  }
  return new Response(Readable.toWeb(message) as ReadableStream<Uint8Array<ArrayBuffer>>, {
    status,
    headers,
  });
}
