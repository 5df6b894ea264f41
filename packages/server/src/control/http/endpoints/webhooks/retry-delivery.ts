import { DeliveryRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { DeliveryParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addRetryDelivery(app: App, { webhooks }: Pick<HttpParts, 'webhooks'>): void {
  app.route({
    method: 'POST',
    url: '/v1/webhooks/:webhook/deliveries/:delivery/retry',
    config: { access: 'organization' },
    schema: {
      operationId: 'retryDelivery',
      summary: 'Send a delivery once more, with all its attempts',
      params: DeliveryParams,
      response: answers(200, DeliveryRecord, [401, 404, 409, 503]),
    },
    handler: ({ organizationId, params }) =>
      webhooks.retry({ organizationId, id: params.webhook }, params.delivery),
  });
}
