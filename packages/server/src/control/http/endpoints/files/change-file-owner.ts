import { ChangeFileOwner, FileDetails } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import { changeFiles, type ChangeParts } from './change-files.ts';

export function addChangeFileOwner(app: App, parts: ChangeParts): void {
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
    handler: (request) =>
      changeFiles(request, parts, ({ resolve, files }) => {
        const data = { ...request.body, path: resolve(request.body.path) };
        const change = () => files.changeOwner(request.params.id, data);
        return {
          buildNote: (outcome) => ({ event: 'file.chown', data: { ...data, ...outcome } }),
          change,
        };
      }),
  });
}
