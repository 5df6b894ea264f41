import { RemoveFileQuery } from '@coppice/contract';
import { answers, NOTHING } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import { changeFiles, type ChangeParts } from './change-files.ts';

export function addRemoveFile(app: App, parts: ChangeParts): void {
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
    handler: async (request, reply) => {
      await changeFiles(request, parts, ({ resolve, files }) => {
        const data = { ...request.query, path: resolve(request.query.path) };
        const change = () => files.remove(request.params.id, data);
        return {
          buildNote: (outcome) => ({ event: 'file.remove', data: { ...data, ...outcome } }),
          change,
        };
      });
      return reply.code(204).send(null);
    },
  });
}
