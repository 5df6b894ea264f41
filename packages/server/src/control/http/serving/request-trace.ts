/**
 * Records each request as the root of a trace, if a collector is configured. The span has no path, query or header:
 * these may hold tokens, names of files, and requests to programs in guests.
 */
import type { FastifyRequest } from 'fastify';
import type { Span } from '../../../lib/tracing/span.ts';
import { parseTraceparent } from '../../../lib/tracing/traceparent.ts';
import { isTracing, runInSpan, startRequest } from '../../../lib/tracing/tracing.ts';
import type { App } from '../app.ts';
import type { HttpParts } from '../parts.ts';

/** Requests of monitoring, which come every few seconds, and a file for everyone: they do nothing. */
const UNTRACED_ROUTES = new Set(['/healthz', '/metrics', '/openapi.json']);
const METHODS: ReadonlySet<string> = new Set([
  'GET',
  'HEAD',
  'POST',
  'PUT',
  'PATCH',
  'DELETE',
  'OPTIONS',
  'QUERY',
]);
const SANDBOX_ID = /^run[0-9a-f]{20}$/u;
const FIRST_FAULT_STATUS = 500;

/** Adds the hooks. They come first, so that the other ones run in the span. */
export function addRequestTrace(app: App, { continuesTraces }: Pick<HttpParts, 'continuesTraces'>): void {
  app.decorateRequest('span', null);
  if (!isTracing()) return;
  app.addHook('onRequest', (request, _reply, done) => {
    const span = startSpan(request, continuesTraces);
    if (span === undefined) return done();
    request.span = span;
    runInSpan(span, done);
  });
  // The events of a body and of the end of an answer belong to the connection, which is older than the request.
  app.addHook('preValidation', (request, _reply, done) => runInSpan(request.span ?? undefined, done));
  app.addHook('onResponse', (request, _reply, done) => runInSpan(request.span ?? undefined, done));
}

function startSpan(request: FastifyRequest, continuesTraces: boolean): Span | undefined {
  const route = findRoute(request);
  if (request.routeOptions.config.isUntraced === true) return undefined;
  if (route !== undefined && UNTRACED_ROUTES.has(route)) return undefined;
  const method = METHODS.has(request.method) ? request.method : '_OTHER';
  const caller = parseTraceparent(request.headers.traceparent);
  const verb = method === '_OTHER' ? 'HTTP' : method;
  return startRequest(route === undefined ? verb : `${verb} ${route}`, {
    attributes: {
      'http.request.method': method,
      'url.scheme': request.protocol,
      'network.protocol.version': request.raw.httpVersion,
      'coppice.request.id': request.id,
      ...(route === undefined ? {} : { 'http.route': route }),
    },
    ...(continuesTraces ? { remote: caller } : { link: caller }),
  });
}

/** Returns the pattern of the route; undefined for a request without a route. */
export function findRoute({ is404, routeOptions }: FastifyRequest): string | undefined {
  return is404 ? undefined : routeOptions.url;
}

/** Ends the span of a request, if it has one. `status` is undefined if the answer was not sent as a whole. */
export function endTrace(request: FastifyRequest, status: number | undefined): void {
  const { span, organizationId, teamId, params } = request;
  if (span === null) return;
  const { id } = (params ?? {}) as { id?: unknown };
  span.set({
    ...(status === undefined ? { 'error.type': 'aborted' } : { 'http.response.status_code': status }),
    ...(organizationId === '' ? {} : { 'coppice.organization.id': organizationId }),
    ...(teamId === '' ? {} : { 'coppice.team.id': teamId }),
    ...(typeof id === 'string' && SANDBOX_ID.test(id) ? { 'coppice.sandbox.id': id } : {}),
  });
  if (status !== undefined && status >= FIRST_FAULT_STATUS) span.markFailed();
  span.end();
}
