import { FileEntry, FilePathQuery } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../answers.ts';
import type { App } from '../app.ts';
import { SandboxParams } from '../params.ts';
import type { HttpParts } from '../parts.ts';

type Parts = Pick<HttpParts, 'sandboxes' | 'runner' | 'openRequests'>;

export function addListFiles(app: App, { sandboxes, runner, openRequests }: Parts): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/files',
    config: { access: 'read' },
    schema: {
      operationId: 'listFiles',
      summary: 'List a directory, sorted by name',
      params: SandboxParams,
      querystring: FilePathQuery,
      response: answers(200, z.array(FileEntry), [400, 401, 404, 409, 429, 502, 503]),
    },
    handler: async (request) => {
      const { id } = request.params;
      const driver = await sandboxes.getDriver(request.reach, id);
      return openRequests.limit(request.organizationId, () =>
        driver.use(() => runner.listFiles(id, request.query.path), { mayWake: request.keyScope === 'full' }),
      );
    },
  });
}
