import type { FastifyReply, FastifyRequest, FastifySchema } from 'fastify';
import { z } from 'zod';
import { contents } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { listCrossOriginFields } from '../../access/cross-origin.ts';
import { endOf } from '../../access/end-with-key.ts';
import { PortParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';
import { guestPath, PROXIED_METHODS, toExchange, unreachable } from '../../access/proxied-route.ts';
import { parsePart } from '../../requests/validator.ts';

type Parts = Pick<HttpParts, 'sandboxes' | 'forwarder' | 'openRequests'>;

/** Forwards requests to a port of the sandbox, for callers with an API key. */
export function addPortProxy(app: App, { sandboxes, forwarder, openRequests }: Parts): void {
  const serve = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const { organizationId, reach } = request;
    // Fastify would check the parameters only after the hook.
    const { id, port } = parsePart(PortParams, { where: 'path', input: request.params });
    const driver = await sandboxes.getDriver(reach, id);
    const exchange = {
      ...toExchange(request, reply),
      target: { id, port: Number(port) },
      path: guestPath(request),
      ownOrigin: true,
      added: listCrossOriginFields(reply),
      over: endOf(request, openRequests),
    };
    await openRequests.stream(organizationId, () => driver.use(() => forwarder.forward(exchange)));
    reply.hijack();
  };
  for (const method of PROXIED_METHODS) {
    app.route({
      method,
      url: '/v1/runs/:id/proxy/:port',
      onRequest: serve,
      handler: unreachable,
      config: { access: 'full', isUnlimited: true, describedAs: '/v1/runs/:id/proxy/:port/:path' },
      schema: describe(method),
    });
  }
}

const DESCRIBED_METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE']);

function describe(method: string): FastifySchema {
  if (!DESCRIBED_METHODS.has(method)) return { hide: true };
  return {
    operationId: `proxy${method.charAt(0)}${method.slice(1).toLowerCase()}`,
    summary: `${method} request to a service that listens in the sandbox`,
    description:
      'The API forwards method, path, query, header fields and body unchanged to localhost:{port} in the sandbox, and ' +
      'returns the answer as it is written. Any method passes, and so do WebSockets; the API key does not. Errors of the ' +
      'API itself, such as 401, 404, 409 and 502, are JSON as everywhere.',
    params: PortParams.extend({ path: z.string().describe('Any path, with its slashes.') }),
    response: { default: contents('The answer of the service in the sandbox.', { '*/*': z.any() }) },
  };
}
