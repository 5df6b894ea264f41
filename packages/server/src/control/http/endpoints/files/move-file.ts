import { FileDetails, MoveFile } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import { changeFiles, type ChangeParts } from './change-files.ts';

export function addMoveFile(app: App, parts: ChangeParts): void {
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
    handler: (request) =>
      changeFiles(request, parts, ({ resolve, files }) => {
        const { from, to, overwrite } = request.body;
        const [path, target] = [resolve(from), resolve(to)];
        const change = () => files.move(request.params.id, { from: path, to: target, overwrite });
        return {
          buildNote: (outcome) => ({ event: 'file.move', data: { path, to: target, ...outcome } }),
          change,
        };
      }),
  });
}
