import { DeliveryRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { WebhookParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addTestWebhook(app: App, { webhooks }: Pick<HttpParts, 'webhooks'>): void {
  app.route({
    method: 'POST',
    url: '/v1/webhooks/:webhook/test',
    config: { access: 'organization' },
    schema: {
      operationId: 'testWebhook',
      summary: 'Send a message of the type webhook.test; the delivery shows what became of it',
      params: WebhookParams,
      response: answers(201, DeliveryRecord, [401, 404, 409, 429, 503]),
    },
    handler: async ({ organizationId, params }, reply) =>
      reply.code(201).send(await webhooks.test({ organizationId, id: params.webhook })),
  });
}
