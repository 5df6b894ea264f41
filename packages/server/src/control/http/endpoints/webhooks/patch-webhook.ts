import { PatchWebhookRequest, WebhookRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { WebhookParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';
import { actorOf } from '../../requests/actor-of.ts';

export function addPatchWebhook(app: App, { webhooks }: Pick<HttpParts, 'webhooks'>): void {
  app.route({
    method: 'PATCH',
    url: '/v1/webhooks/:webhook',
    config: { access: 'organization' },
    schema: {
      operationId: 'patchWebhook',
      summary: 'Change a webhook, or enable it again',
      description:
        'A webhook that is disabled gets no new deliveries. Those that wait are sent when it is enabled.',
      params: WebhookParams,
      body: PatchWebhookRequest,
      response: answers(200, WebhookRecord, [400, 401, 404, 503]),
    },
    handler: (request) => {
      const { organizationId, params, body } = request;
      return webhooks.patch({ organizationId, id: params.webhook }, body, actorOf(request));
    },
  });
}
