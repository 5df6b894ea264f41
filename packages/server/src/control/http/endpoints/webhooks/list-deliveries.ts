import { DeliveryRecord, ListDeliveriesQuery } from '@coppice/contract';
import { z } from 'zod';
import { parseCursor } from '../../requests/cursor.ts';
import { sendPage } from '../../requests/page.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { WebhookParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addListDeliveries(app: App, { webhooks }: Pick<HttpParts, 'webhooks'>): void {
  app.route({
    method: 'GET',
    url: '/v1/webhooks/:webhook/deliveries',
    config: { access: 'read_organization' },
    schema: {
      operationId: 'listDeliveries',
      summary: 'List the deliveries of a webhook, newest first, with their last attempts',
      description: 'The next page is in the header `Link: <…>; rel="next"`. Deliveries are kept for 7 days.',
      params: WebhookParams,
      querystring: ListDeliveriesQuery,
      response: answers(200, z.array(DeliveryRecord), [400, 401, 404, 503]),
    },
    handler: async ({ organizationId, params, query }, reply) => {
      const { limit, cursor, state } = query;
      const after = cursor === undefined ? {} : { after: parseCursor(cursor) };
      const address = { organizationId, id: params.webhook };
      const listed = await webhooks.listDeliveries(address, { limit: limit + 1, state, ...after });
      const filter = new URLSearchParams(state === undefined ? {} : { state });
      return sendPage(reply, listed, { path: `/v1/webhooks/${params.webhook}/deliveries`, limit, filter });
    },
  });
}
