import { RemoveFileQuery } from '@coppice/contract';
import { logChange } from '../../../audit/logged-change.ts';
import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';
import type { HttpParts } from '../../parts.ts';

type Parts = Pick<HttpParts, 'sandboxes' | 'runner' | 'audit' | 'openRequests'>;

export function addRemoveFile(app: App, { sandboxes, runner, audit, openRequests }: Parts): void {
  app.route({
    method: 'DELETE',
    url: '/v1/runs/:id/files',
    config: { access: 'full' },
    schema: {
      operationId: 'removeFile',
      summary: 'Remove a file or directory',
      description:
        'A symlink is removed itself, never its target. The removal of a large tree stops after 45 s with `file_error`: ' +
        'repeat it to continue.',
      params: SandboxParams,
      querystring: RemoveFileQuery,
      response: answers(204, NOTHING, [400, 401, 404, 409, 429, 502, 503, 504, 507]),
    },
    handler: async ({ organizationId, reach, params, query }, reply) => {
      const driver = await sandboxes.getDriver(reach, params.id);
      await openRequests.limit(organizationId, () =>
        driver.use(() => {
          const removal = { ...query, path: resolvePath(driver.row, query.path) };
          const append = (outcome: object) =>
            audit.append(params.id, { event: 'file.remove', data: { ...removal, ...outcome } });
          return logChange(append, () => runner.files.remove(params.id, removal));
        }),
      );
      return reply.code(204).send(null);
    },
  });
}
