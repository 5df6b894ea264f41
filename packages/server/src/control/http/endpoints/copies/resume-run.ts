import { ResumeQuery, SandboxRecord } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { NoBody } from '../../answers/no-body.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addResumeRun(
  app: App,
  { sandboxes, openRequests }: Pick<HttpParts, 'sandboxes' | 'openRequests'>,
): void {
  app.route({
    method: 'POST',
    url: '/v1/runs/:id/resume',
    config: { access: 'full' },
    schema: {
      operationId: 'resumeSandbox',
      summary: 'Resume a hibernated sandbox from its saved state',
      params: SandboxParams,
      querystring: ResumeQuery,
      body: NoBody,
      response: answers(200, SandboxRecord, [400, 401, 402, 404, 409, 429, 502, 503, 504]),
    },
    handler: async ({ organizationId, reach, params, query }) => {
      const driver = await sandboxes.getDriver(reach, params.id);
      return openRequests.limit(organizationId, () =>
        driver.hibernation.resume({ isFresh: query.disk === 'fresh' }),
      );
    },
  });
}
