import { ChangeFileMode, FileDetails } from '@coppice/contract';
import { logChange } from '../../../audit/logged-change.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';
import type { HttpParts } from '../../parts.ts';

type Parts = Pick<HttpParts, 'sandboxes' | 'runner' | 'audit' | 'openRequests'>;

export function addChangeFileMode(app: App, { sandboxes, runner, audit, openRequests }: Parts): void {
  app.route({
    method: 'POST',
    url: '/v1/runs/:id/files/chmod',
    config: { access: 'full' },
    schema: {
      operationId: 'changeFileMode',
      summary: 'Change the permissions of a file, or of all below a directory',
      description:
        'Follows a symlink at `path`, and none below it. Pipes, sockets and devices below it keep their permissions. The ' +
        'change of a large tree stops after 45 s with `file_error`. Repeat it to continue: it passes over files that have the mode.',
      params: SandboxParams,
      body: ChangeFileMode,
      response: answers(200, FileDetails, [400, 401, 404, 409, 413, 429, 502, 503, 504, 507]),
    },
    handler: async ({ organizationId, reach, params, body }) => {
      const driver = await sandboxes.getDriver(reach, params.id);
      return openRequests.limit(organizationId, () =>
        driver.use(() => {
          const change = { ...body, path: resolvePath(driver.row, body.path) };
          const append = (outcome: object) =>
            audit.append(params.id, { event: 'file.chmod', data: { ...change, ...outcome } });
          return logChange(append, () => runner.files.changeMode(params.id, change));
        }),
      );
    },
  });
}
