/**
 * Sets the id of every answer, and logs one line per request with nothing secret in it: no headers, no query, no
 * bodies, no commands, no file names.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { withoutToken } from '../access/file-link-path.ts';
import type { App } from '../app.ts';

const CALLER_ID = /^[A-Za-z0-9._-]{1,64}$/;

/** Returns the caller's own `x-request-id` if it is valid, so that both logs can be joined; else a new id. */
export function readRequestId(header: string | string[] | undefined, generate: () => string): string {
  return typeof header === 'string' && CALLER_ID.test(header) ? header : generate();
}

export function addRequestLog(app: App): void {
  app.addHook('onResponse', async (request, reply) => {
    request.log.info(buildFields(request, reply), 'request');
  });
  app.addHook('onRequest', async (request, reply) => {
    const { raw } = reply;
    reply.header('x-request-id', request.id);
    raw.once('close', () => {
      if (!raw.writableFinished)
        request.log.info(buildTarget(request), 'the connection ended before the answer');
    });
  });
}

function buildFields(request: FastifyRequest, reply: FastifyReply): Record<string, unknown> {
  return {
    ...buildTarget(request),
    status: reply.statusCode,
    duration_ms: Math.round(reply.elapsedTime * 10) / 10,
  };
}

function buildTarget(request: FastifyRequest): Record<string, unknown> {
  const { id } = (request.params ?? {}) as { id?: unknown };
  return {
    method: request.method,
    // The pattern of the route, or, without a route, the requested path without its query.
    route: request.routeOptions.url ?? withoutToken(request.url.split('?', 1)[0] ?? '').slice(0, 200),
    client_address: request.clientAddress,
    ...(request.organizationId === '' ? {} : { organization_id: request.organizationId }),
    ...(typeof id === 'string' ? { sandbox_id: id.slice(0, 64) } : {}),
    ...request.span?.logFields,
  };
}
