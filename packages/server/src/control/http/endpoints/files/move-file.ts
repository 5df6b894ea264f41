import { FileDetails, MoveFile } from '@coppice/contract';
import { logChange } from '../../../audit/logged-change.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';
import type { HttpParts } from '../../parts.ts';

type Parts = Pick<HttpParts, 'sandboxes' | 'runner' | 'audit' | 'openRequests'>;

export function addMoveFile(app: App, { sandboxes, runner, audit, openRequests }: Parts): void {
  app.route({
    method: 'POST',
    url: '/v1/runs/:id/files/move',
    config: { access: 'full' },
    schema: {
      operationId: 'moveFile',
      summary: 'Move or rename a file or directory',
      description:
        'One atomic rename: nothing is copied, so a move between file systems is refused with `file_error` (EXDEV). A symlink ' +
        'is moved itself.',
      params: SandboxParams,
      body: MoveFile,
      response: answers(200, FileDetails, [400, 401, 404, 409, 413, 429, 502, 503, 504, 507]),
    },
    handler: async ({ organizationId, reach, params, body }) => {
      const driver = await sandboxes.getDriver(reach, params.id);
      return openRequests.limit(organizationId, () =>
        driver.use(() => {
          const [path, to] = [resolvePath(driver.row, body.from), resolvePath(driver.row, body.to)];
          const append = (outcome: object) =>
            audit.append(params.id, { event: 'file.move', data: { path, to, ...outcome } });
          return logChange(append, () => runner.files.move(params.id, { ...body, from: path, to }));
        }),
      );
    },
  });
}
