import { CreatedWebhook, CreateWebhookRequest } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addCreateWebhook(app: App, { webhooks }: Pick<HttpParts, 'webhooks'>): void {
  app.route({
    method: 'POST',
    url: '/v1/webhooks',
    config: { access: 'organization' },
    schema: {
      operationId: 'createWebhook',
      summary: 'Create a webhook: events of the organization are sent to a URL',
      description:
        'The secret is shown only in this answer. Requests follow the Standard Webhooks specification.',
      body: CreateWebhookRequest,
      response: answers(201, CreatedWebhook, [400, 401, 429, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, body } = request;
      return reply.code(201).send(await webhooks.create(organizationId, body, actorOf(request)));
    },
  });
}
