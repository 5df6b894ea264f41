import { AppError } from '@coppice/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { CONTENT } from '../answers.ts';
import type { App } from '../app.ts';
import { PortParams } from '../params.ts';
import type { HttpParts } from '../parts.ts';
import { guestPath, leaveBodies, PROXIED_METHODS, toExchange } from '../proxied-route.ts';

type Parts = Pick<HttpParts, 'sandboxes' | 'forwarder' | 'openRequests'>;

/**
 * A port of the sandbox. It is served before the handler, as that of an upgrade belongs to the plugin for WebSockets;
 * what has passed by then is told to nobody else.
 */
export function addPortProxy(app: App, { sandboxes, forwarder, openRequests }: Parts): void {
  const serve = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const { organizationId } = request;
    const { id, port } = PortParams.parse(request.params);
    const driver = await sandboxes.getDriver(organizationId, id);
    const exchange = {
      ...toExchange(request, reply),
      target: { id, port: Number(port) },
      path: guestPath(request),
      ownOrigin: true,
    };
    await openRequests.stream(organizationId, () => driver.use(() => forwarder.forward(exchange)));
    reply.hijack();
  };
  void app.register(async (scope: App) => {
    leaveBodies(scope);
    const common = {
      url: '/v1/runs/:id/proxy/:port',
      config: { hasRawBody: true },
      preHandler: serve,
      handler: unreachable,
    };
    scope.route({
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
    scope.route({ ...common, method: others, schema: { hide: true, params: PortParams } });
  });
}

async function unreachable(): Promise<never> {
  throw new AppError('internal', 'a proxied request came to its handler');
}
