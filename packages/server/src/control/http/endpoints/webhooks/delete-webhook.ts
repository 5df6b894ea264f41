import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { WebhookParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addDeleteWebhook(app: App, { webhooks }: Pick<HttpParts, 'webhooks'>): void {
  app.route({
    method: 'DELETE',
    url: '/v1/webhooks/:webhook',
    config: { access: 'organization' },
    schema: {
      operationId: 'deleteWebhook',
      summary: 'Delete a webhook with its deliveries',
      params: WebhookParams,
      response: answers(204, NOTHING, [401, 404, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, params } = request;
      await webhooks.remove({ organizationId, id: params.webhook }, actorOf(request));
      return reply.code(204).send(null);
    },
  });
}
