import { FileDetails, FilePathQuery } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';
import type { HttpParts } from '../../parts.ts';

type Parts = Pick<HttpParts, 'sandboxes' | 'openRequests'>;

export function addStatFile(app: App, { sandboxes, openRequests }: Parts): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/files/stat',
    config: { access: 'read' },
    schema: {
      operationId: 'getFileDetails',
      summary: 'Get the type, size, mode, owner and time of a file or directory',
      description: 'A symlink is described itself; with a slash at the end of `path`, its target.',
      params: SandboxParams,
      querystring: FilePathQuery,
      response: answers(200, FileDetails, [400, 401, 404, 409, 429, 502, 503]),
    },
    handler: async (request) => {
      const { id } = request.params;
      const driver = await sandboxes.getDriver(request.reach, id);
      const stat = () => driver.runner.files.stat(id, resolvePath(driver.row, request.query.path));
      return openRequests.limit(request.organizationId, () =>
        driver.use(stat, { mayWake: request.keyScope === 'full' }),
      );
    },
  });
}
