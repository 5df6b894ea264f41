/**
 * The tools of the Model Context Protocol, over Streamable HTTP. A tool calls the API through the client, within this
 * process, with the caller's own key: so every check, limit and audit entry of the API holds for tools, too.
 */
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { AppError } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import { serveHttpRequest } from '../../../../../../mcp/src/serve-http-request.ts';
import { Coppice } from '../../../../../../sdk/src/index.ts';
import { endOf } from '../../access/end-with-key.ts';
import { sendBody } from '../../answers/send-body.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { InProcessApi } from '../../serving/in-process-fetch.ts';
import { beginSession, RunningCalls, toMessage } from './running-calls.ts';

/** A tool writes a file in one message. */
const BODY_BYTES = 4 << 20;
/** A client that reads nothing of an answer for this long counts as gone. */
const STALL_MS = 120_000;

type Parts = Pick<HttpParts, 'openRequests' | 'version'>;

/** A call is cancelled, and a command that it runs is killed, when the client leaves or cancels it. */
export function addMcp(app: App, { openRequests, version }: Parts): void {
  const api = new InProcessApi((request, response) => app.routing(request, response));
  const calls = new RunningCalls();
  app.route({
    method: 'POST',
    url: '/mcp',
    bodyLimit: BODY_BYTES,
    // Tools that change something call routes that need more than this.
    config: { access: 'read' },
    schema: { hide: true },
    handler: async (request, reply) => {
      assertOneMessage(request.body);
      const left = new AbortController();
      reply.raw.once('close', () => left.abort());
      const client = buildClient(request, api);
      const message = toMessage(request.body);
      // A subscription does not end by itself; a tool does when the calls that it makes are ended.
      const isEndless = message.method === 'subscriptions/listen';
      const over = isEndless ? AbortSignal.any([left.signal, endOf(request, openRequests)]) : left.signal;
      const answer = async (): Promise<void> => {
        using _call = calls.accept(request, message, left);
        const { status, headers, body } = await serveHttpRequest({
          request: toWebRequest(request, over),
          body: request.body,
          session: { client, created: () => undefined },
          version,
          onError: (error) => request.log.debug({ err: error }, 'an MCP request failed'),
        });
        const options = {
          status,
          headers: { ...Object.fromEntries(headers), ...beginSession(message) },
          stallMs: STALL_MS,
        };
        await sendBody(reply, options, (raw) => writeAll(raw, body, left.signal));
      };
      await openRequests.stream(request.organizationId, answer);
      return reply;
    },
  });
}

/** One request may not hold thousands of calls: only requests are limited. Revisions since 2025-06-18 have no batches. */
function assertOneMessage(body: unknown): void {
  if (Array.isArray(body))
    throw new AppError('invalid_request', 'body: is a batch; send each message in a request of its own');
}

/** Waits for a client that does not read, and stops when it has left. */
async function writeAll(
  raw: ServerResponse,
  body: ReadableStream<Uint8Array> | null,
  left: AbortSignal,
): Promise<void> {
  for await (const chunk of body ?? []) if (!raw.write(chunk)) await once(raw, 'drain', { signal: left });
  raw.end();
}

/** The key never leaves the process, so it needs no TLS. */
function buildClient(request: FastifyRequest, api: InProcessApi): Coppice {
  const { clientAddress, id } = request;
  return new Coppice({
    apiKey: readKey(request),
    baseUrl: readOrigin(request),
    allowPlainHttp: true,
    fetch: api.buildFetch({ clientAddress, requestId: id }),
  });
}

/** Returns what of the requested host belongs to an origin: URLs of ports begin with it. */
function readOrigin({ ownOrigin }: FastifyRequest): string {
  if (URL.canParse(ownOrigin)) return new URL(ownOrigin).origin;
  throw new AppError('invalid_request', 'Host: is missing or not a host; send the one of this service');
}

/** Returns the key that the request was authenticated by. */
function readKey({ headers: { authorization = '' } }: FastifyRequest): string {
  return authorization.trim().replace(/^Bearer +/iu, '');
}

function toWebRequest(request: FastifyRequest, signal: AbortSignal): Request {
  const fields = Object.entries(request.headers).flatMap(([name, value]): [string, string][] =>
    typeof value === 'string' ? [[name, value]] : [],
  );
  return new Request(new URL('/mcp', readOrigin(request)), { method: 'POST', headers: fields, signal });
}
