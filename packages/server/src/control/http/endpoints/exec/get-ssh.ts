import { SshHost } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addGetSsh(
  app: App,
  { sandboxes, openRequests }: Pick<HttpParts, 'sandboxes' | 'openRequests'>,
): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/ssh',
    // It is of use only to those who may connect, and it resumes a hibernated sandbox.
    config: { access: 'full' },
    schema: {
      operationId: 'getSsh',
      summary: 'Get the host key of the SSH server of a sandbox',
      description:
        'The key is in the memory of the sandbox: one that is hibernated is resumed first if it has `auto_hibernate`, and else ' +
        'refused.',
      params: SandboxParams,
      response: answers(200, SshHost, [400, 401, 404, 409, 429, 502, 503]),
    },
    handler: async ({ reach, organizationId, params: { id } }) => {
      const driver = await sandboxes.getDriver(reach, id);
      return openRequests.limit(organizationId, () => driver.use(() => driver.runner.readSshHost(id)));
    },
  });
}
