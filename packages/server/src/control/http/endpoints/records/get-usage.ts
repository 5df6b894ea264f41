import { UsageRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';

export function addGetUsage(app: App, { billing }: Pick<HttpParts, 'billing'>): void {
  app.route({
    method: 'GET',
    url: '/v1/usage',
    config: { access: 'read' },
    schema: {
      operationId: 'getUsage',
      summary: 'Get the usage of the organization and its cost, up to now',
      description:
        'A key that is limited to its team gets the usage of the team, without the credit, which is shared.',
      response: answers(200, UsageRecord, [401, 429, 503]),
    },
    handler: ({ reach }) => billing.usage(reach),
  });
}
