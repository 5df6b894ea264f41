import { ChangeFileOwner, FileDetails } from '@coppice/contract';
import { logChange } from '../../../audit/logged-change.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';
import type { HttpParts } from '../../parts.ts';

type Parts = Pick<HttpParts, 'sandboxes' | 'runner' | 'audit' | 'openRequests'>;

export function addChangeFileOwner(app: App, { sandboxes, runner, audit, openRequests }: Parts): void {
  app.route({
    method: 'POST',
    url: '/v1/runs/:id/files/chown',
    config: { access: 'full' },
    schema: {
      operationId: 'changeFileOwner',
      summary: 'Change the owner of a file, or of all below a directory',
      description:
        'Follows a symlink at `path`, and none below it. The kernel drops the set-id bits of changed files. The ' +
        'change of a large tree stops after 45 s with `file_error`. Repeat it to continue: it passes over files that have the owner.',
      params: SandboxParams,
      body: ChangeFileOwner,
      response: answers(200, FileDetails, [400, 401, 404, 409, 413, 429, 502, 503, 504, 507]),
    },
    handler: async ({ organizationId, reach, params, body }) => {
      const driver = await sandboxes.getDriver(reach, params.id);
      return openRequests.limit(organizationId, () =>
        driver.use(() => {
          const change = { ...body, path: resolvePath(driver.row, body.path) };
          const append = (outcome: object) =>
            audit.append(params.id, { event: 'file.chown', data: { ...change, ...outcome } });
          return logChange(append, () => runner.files.changeOwner(params.id, change));
        }),
      );
    },
  });
}
