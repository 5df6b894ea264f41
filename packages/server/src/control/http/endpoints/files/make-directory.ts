import { FileDetails, MakeDirectory } from '@coppice/contract';
import { logChange } from '../../../audit/logged-change.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';
import type { HttpParts } from '../../parts.ts';

type Parts = Pick<HttpParts, 'sandboxes' | 'runner' | 'audit' | 'openRequests'>;

export function addMakeDirectory(app: App, { sandboxes, runner, audit, openRequests }: Parts): void {
  app.route({
    method: 'POST',
    url: '/v1/runs/:id/files/mkdir',
    config: { access: 'full' },
    schema: {
      operationId: 'makeDirectory',
      summary: 'Create a directory',
      params: SandboxParams,
      body: MakeDirectory,
      response: answers(201, FileDetails, [400, 401, 404, 409, 413, 429, 502, 503, 504, 507]),
    },
    handler: async ({ organizationId, reach, params, body }, reply) => {
      const driver = await sandboxes.getDriver(reach, params.id);
      const made = await openRequests.limit(organizationId, () =>
        driver.use(() => {
          const path = resolvePath(driver.row, body.path);
          const append = (outcome: object) =>
            audit.append(params.id, { event: 'file.mkdir', data: { path, ...outcome } });
          return logChange(append, () => runner.files.makeDirectory(params.id, { ...body, path }));
        }),
      );
      return reply.code(201).send(made);
    },
  });
}
