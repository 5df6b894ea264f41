import { CreatedWebhook, RotateWebhookRequest } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { WebhookParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';
import { actorOf } from '../../requests/actor-of.ts';

const Body = z.preprocess((body) => body ?? {}, RotateWebhookRequest);

export function addRotateWebhook(app: App, { webhooks }: Pick<HttpParts, 'webhooks'>): void {
  app.route({
    method: 'POST',
    url: '/v1/webhooks/:webhook/rotate',
    config: { access: 'organization' },
    schema: {
      operationId: 'rotateWebhook',
      summary: 'Make a new secret; the old one signs, too, until the overlap ends',
      params: WebhookParams,
      body: Body,
      response: answers(200, CreatedWebhook, [400, 401, 404, 503]),
    },
    handler: (request) => {
      const { organizationId, params, body } = request;
      return webhooks.rotate({ organizationId, id: params.webhook }, body, actorOf(request));
    },
  });
}
