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
      summary: 'What the organization has used and what it costs, up to now',
      description:
        'For a key that is limited to its team: what the team has, without the credit, which is shared.',
      response: answers(200, UsageRecord, [401, 429, 503]),
    },
    handler: ({ reach }) => billing.usage(reach),
  });
}
