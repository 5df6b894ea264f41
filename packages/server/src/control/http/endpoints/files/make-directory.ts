import { FileDetails, MakeDirectory } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import { changeFiles, type ChangeParts } from './change-files.ts';

export function addMakeDirectory(app: App, parts: ChangeParts): void {
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
    handler: async (request, reply) => {
      const made = await changeFiles(request, parts, ({ resolve, files }) => {
        const path = resolve(request.body.path);
        const change = () => files.makeDirectory(request.params.id, { ...request.body, path });
        return {
          buildNote: (outcome) => ({ event: 'file.mkdir', data: { path, ...outcome } }),
          change,
        };
      });
      return reply.code(201).send(made);
    },
  });
}
