import { SandboxRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { NoBody } from '../../answers/no-body.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addHibernateRun(
  app: App,
  { sandboxes, openRequests }: Pick<HttpParts, 'sandboxes' | 'openRequests'>,
): void {
  app.route({
    method: 'POST',
    url: '/v1/runs/:id/hibernate',
    config: { access: 'full' },
    schema: {
      operationId: 'hibernateSandbox',
      summary:
        'Save a sandbox to disk and free its memory and processors; a hibernated sandbox costs nothing',
      params: SandboxParams,
      body: NoBody,
      response: answers(200, SandboxRecord, [400, 401, 404, 409, 429, 502, 503, 504]),
    },
    handler: async ({ organizationId, reach, params }) => {
      const driver = await sandboxes.getDriver(reach, params.id);
      return openRequests.limit(organizationId, () => driver.hibernation.hibernate());
    },
  });
}
