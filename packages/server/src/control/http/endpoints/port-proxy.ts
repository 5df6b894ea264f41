import type { FastifyReply, FastifyRequest } from 'fastify';
import { CONTENT } from '../answers.ts';
import type { App } from '../app.ts';
import { listCrossOriginFields } from '../cross-origin.ts';
import { endOf } from '../end-with-key.ts';
import { PortParams } from '../params.ts';
import type { HttpParts } from '../parts.ts';
import { guestPath, PROXIED_METHODS, toExchange, unreachable } from '../proxied-route.ts';
import { parsePart } from '../validator.ts';

type Parts = Pick<HttpParts, 'sandboxes' | 'forwarder' | 'openRequests'>;

/** A port of the sandbox, for whoever has the API key. */
export function addPortProxy(app: App, { sandboxes, forwarder, openRequests }: Parts): void {
  const serve = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const { organizationId, reach } = request;
    // Fastify would check them only after the hook.
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
  const common = {
    url: '/v1/runs/:id/proxy/:port',
    onRequest: serve,
    handler: unreachable,
    config: { access: 'full', isUnlimited: true } as const,
  };
  app.route({
    ...common,
    method: 'GET',
    schema: {
      operationId: 'proxyPort',
      summary: 'A service that listens in the sandbox: any method, `…/proxy/{port}/<path>?<query>`',
      description:
        'Method, path, query and body are forwarded as they are to localhost:{port} in the sandbox, the answer comes ' +
        'back as it is written; WebSockets pass. The API key does not.',
      params: PortParams,
      response: { default: CONTENT },
    },
  });
  const others = PROXIED_METHODS.filter((method) => method !== 'GET');
  app.route({ ...common, method: others, schema: { hide: true } });
}
