import { pipeline } from 'node:stream/promises';
import { ArchiveQuery } from '@coppice/contract';
import { z } from 'zod';
import { answers, CONTENT, contents } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';
import type { HttpParts } from '../../parts.ts';
import { buildSafeHeaders, readContent } from '../../answers/guest-content.ts';
import { sendBody } from '../../answers/send-body.ts';

const TYPES = { tar: 'application/x-tar', 'tar.gz': 'application/gzip' } as const;
const OK = contents('The archive', { 'application/x-tar': CONTENT, 'application/gzip': CONTENT });

type Parts = Pick<HttpParts, 'sandboxes' | 'audit' | 'openRequests' | 'limits'>;

export function addDownloadArchive(app: App, { sandboxes, audit, openRequests, limits }: Parts): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/files/archive',
    config: { access: 'read' },
    schema: {
      operationId: 'downloadArchive',
      summary: 'Read a directory with everything in it, as a tar',
      description:
        'Names are relative to the directory. Pipes, sockets, devices and the content of other file systems are left out. An ' +
        'archive that is not complete, because a file could not be read or became shorter, ends with a broken connection.',
      params: SandboxParams,
      querystring: ArchiveQuery,
      response: { ...answers(200, z.any(), [400, 401, 404, 409, 429, 502, 503]), 200: OK },
    },
    handler: async (request, reply) => {
      const { organizationId, reach, params, query, keyScope } = request;
      const { format } = query;
      const driver = await sandboxes.getDriver(reach, params.id);
      const path = resolvePath(driver.row, query.path);
      const send = async (): Promise<void> => {
        const answer = await driver.runner.files.openArchive(params.id, { path, format });
        const content = readContent(answer, null);
        const data = { path, size: null, archive: format };
        await content.logged(() => audit.append(params.id, { event: 'file.download', data }));
        const headers = { ...buildSafeHeaders(path, `.${format}`), 'content-type': TYPES[format] };
        const body = { status: 200, headers, stallMs: limits.transferStallMs };
        await sendBody(reply, body, (raw) => pipeline(content.body, raw));
      };
      await openRequests.limit(organizationId, () => driver.use(send, { mayWake: keyScope === 'full' }));
      return reply;
    },
  });
}
