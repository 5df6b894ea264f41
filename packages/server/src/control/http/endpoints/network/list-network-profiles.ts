import { NetworkProfileRecord } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';

export function addListNetworkProfiles(app: App, { rules }: Pick<HttpParts, 'rules'>): void {
  app.route({
    method: 'GET',
    url: '/v1/network-profiles',
    config: { access: 'read' },
    schema: {
      operationId: 'listNetworkProfiles',
      summary: 'List network profiles, as this service enforces them',
      response: answers(200, z.array(NetworkProfileRecord), [401, 503]),
    },
    handler: async () => rules.listProfiles(),
  });
}
