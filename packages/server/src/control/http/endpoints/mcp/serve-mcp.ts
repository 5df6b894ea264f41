/**
 * The tools of the Model Context Protocol, over Streamable HTTP. A tool calls the API through the client, within this
 * process, with the caller's own key: so every check, limit and audit entry of the API holds for tools, too.
 */
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { finished } from 'node:stream/promises';
import { AppError } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import type { ToolSession } from '../../../../../../mcp/src/add-tool.ts';
import { serveHttpRequest } from '../../../../../../mcp/src/serve-http-request.ts';
import { Coppice } from '../../../../../../sdk/src/index.ts';
import { endOf } from '../../access/end-with-key.ts';
import { sendBody } from '../../answers/send-body.ts';
import { whenLeft } from '../../answers/when-left.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { InProcessApi, type CreateForCall } from '../../serving/in-process-fetch.ts';
import { CallCreations } from './call-creations.ts';
import { readMessage } from './message.ts';
import { beginSession, RunningCalls } from './running-calls.ts';

/** A tool writes a file in one message. */
const BODY_BYTES = 4 << 20;
/** More than a message of a tool has; each value takes memory. */
const MAX_JSON = { values: 10_000, depth: 64 };
/** A client that reads nothing of an answer for this long counts as gone. */
const STALL_MS = 120_000;

type Parts = Pick<HttpParts, 'openRequests' | 'sandboxes' | 'version'>;

/** Control destroys sandboxes of a call whose caller did not receive their ids: see {@link CallCreations}. */
const CREATIONS: ToolSession['creations'] = {
  track: (create) => create(),
  add: () => undefined,
  discard: async () => undefined,
};

/** A call is cancelled, and a command that it runs is killed, when the client leaves or cancels it. */
export function addMcp(app: App, { openRequests, sandboxes, version }: Parts): void {
  const api = new InProcessApi((request, response) => app.routing(request, response));
  const calls = new RunningCalls();
  app.route({
    method: 'POST',
    url: '/mcp',
    bodyLimit: BODY_BYTES,
    // Tools that change something call routes that need more than this.
    config: { access: 'read', maxJson: MAX_JSON },
    schema: { hide: true },
    handler: async (request, reply) => {
      const message = readMessage(request.body);
      const { organizationId, reach, log } = request;
      const creations = new CallCreations({ reach, sandboxes, log });
      const cancelled = new AbortController();
      const left = AbortSignal.any([cancelled.signal, whenLeft(reply)]);
      const session = { client: buildClient(request, api, creations.create), creations: CREATIONS };
      // A subscription does not end by itself; a tool does when the calls that it makes are ended.
      const isEndless = message.method === 'subscriptions/listen';
      const over = isEndless ? AbortSignal.any([left, endOf(request, openRequests)]) : left;
      const answer = async (): Promise<void> => {
        using _call = calls.accept(request, message, cancelled);
        const { status, headers, body } = await serveHttpRequest({
          request: toWebRequest(request, over),
          body: request.body,
          session,
          version,
          onError: (error) => log.debug({ err: error }, 'an MCP request failed'),
        });
        const fields = { ...Object.fromEntries(headers), ...beginSession(message) };
        const options = { status, headers: fields, stallMs: STALL_MS };
        await sendBody(reply, options, (raw) => writeAll(raw, body, left));
      };
      const isLost = (): boolean =>
        cancelled.signal.aborted || request.keyEnd?.aborted === true || !reply.raw.writableFinished;
      await openRequests.callTool(organizationId, async () => {
        // A shutdown also waits for what is left to do after the answer.
        openRequests.enter();
        try {
          await answer();
        } finally {
          if (isLost()) await creations.discard();
          openRequests.leave();
        }
      });
      return reply;
    },
  });
}

/** Waits for a client that does not read, and stops when it has left. Rejects if the client has not got all. */
async function writeAll(
  raw: ServerResponse,
  body: ReadableStream<Uint8Array> | null,
  left: AbortSignal,
): Promise<void> {
  for await (const chunk of body ?? []) if (!raw.write(chunk)) await once(raw, 'drain', { signal: left });
  raw.end();
  await finished(raw);
}

/** The key never leaves the process, so it needs no TLS. */
function buildClient(request: FastifyRequest, api: InProcessApi, create: CreateForCall): Coppice {
  const { clientAddress, id } = request;
  return new Coppice({
    apiKey: readKey(request),
    baseUrl: readOrigin(request),
    allowPlainHttp: true,
    fetch: api.buildFetch({ clientAddress, requestId: id, create }),
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
