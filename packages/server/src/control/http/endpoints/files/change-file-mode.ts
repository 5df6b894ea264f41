import { ChangeFileMode, FileDetails } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import { changeFiles, type ChangeParts } from './change-files.ts';

export function addChangeFileMode(app: App, parts: ChangeParts): void {
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
    handler: (request) =>
      changeFiles(request, parts, ({ resolve, files }) => {
        const data = { ...request.body, path: resolve(request.body.path) };
        const change = () => files.changeMode(request.params.id, data);
        return {
          buildNote: (outcome) => ({ event: 'file.chmod', data: { ...data, ...outcome } }),
          change,
        };
      }),
  });
}
