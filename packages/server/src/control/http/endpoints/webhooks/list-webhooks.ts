import { WebhookRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';

export function addListWebhooks(app: App, { webhooks }: Pick<HttpParts, 'webhooks'>): void {
  app.route({
    method: 'GET',
    url: '/v1/webhooks',
    config: { access: 'read_organization' },
    schema: {
      operationId: 'listWebhooks',
      summary: 'List the webhooks of the organization, oldest first',
      response: answers(200, z.array(WebhookRecord), [401, 503]),
    },
    handler: ({ organizationId }) => webhooks.list(organizationId),
  });
}
