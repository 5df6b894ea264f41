import { WebhookRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { WebhookParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addGetWebhook(app: App, { webhooks }: Pick<HttpParts, 'webhooks'>): void {
  app.route({
    method: 'GET',
    url: '/v1/webhooks/:webhook',
    config: { access: 'read_organization' },
    schema: {
      operationId: 'getWebhook',
      summary: 'Get a webhook',
      params: WebhookParams,
      response: answers(200, WebhookRecord, [401, 404, 503]),
    },
    handler: ({ organizationId, params }) => webhooks.get({ organizationId, id: params.webhook }),
  });
}
