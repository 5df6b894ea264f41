import { FileEntry, ListFilesQuery } from '@coppice/contract';
import { z } from 'zod';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { linkNext } from '../../requests/page.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';

type Parts = Pick<HttpParts, 'sandboxes' | 'openRequests'>;

export function addListFiles(app: App, { sandboxes, openRequests }: Parts): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/files',
    config: { access: 'read' },
    schema: {
      operationId: 'listFiles',
      summary: 'List a directory, sorted by the bytes of the names',
      description: 'The next page is in the header `Link: <…>; rel="next"`.',
      params: SandboxParams,
      querystring: ListFilesQuery,
      response: answers(200, z.array(FileEntry), [400, 401, 404, 409, 429, 502, 503]),
    },
    handler: async (request, reply) => {
      const { id } = request.params;
      const { path, limit, cursor } = request.query;
      const driver = await sandboxes.getDriver(request.reach, id);
      const list = () => driver.runner.listFiles(id, { path: resolvePath(driver.row, path), limit, cursor });
      const page = await openRequests.limit(request.organizationId, () =>
        driver.use(list, { mayWake: request.keyScope === 'full' }),
      );
      if (page.cursor !== undefined) {
        const next = new URLSearchParams({ path, limit: String(limit), cursor: page.cursor });
        linkNext(reply, `/v1/runs/${id}/files`, next);
      }
      return page.entries;
    },
  });
}
