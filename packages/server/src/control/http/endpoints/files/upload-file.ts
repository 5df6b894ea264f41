import { UploadQuery, UploadResult } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import { answers, CONTENT } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { FormFile, isForm } from '../../requests/form-file.ts';
import { addRawBodies, cutOff, watchForStall } from '../../requests/raw-body.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';

/** Deadline of a whole upload. */
const UPLOAD_DEADLINE_MS = 24 * 3_600_000;

type Parts = Pick<HttpParts, 'sandboxes' | 'runner' | 'audit' | 'openRequests' | 'limits'>;

/** The body is piped to the guest as it comes. If it breaks off, its stream is reset and the guest keeps nothing. */
export function addUploadFile(app: App, { sandboxes, runner, audit, openRequests, limits }: Parts): void {
  addRawBodies(app, (scope) => {
    scope.route({
      method: 'POST',
      url: '/v1/runs/:id/files/upload',
      config: { access: 'full', hasRawBody: true },
      schema: {
        operationId: 'uploadFile',
        summary: 'Write a file',
        description:
          'The body is the content, as raw bytes of any content type. A `multipart/form-data` body has exactly one part, ' +
          'named `file`. The file appears when the upload is complete. The file and the directories created for it belong to ' +
          '`user`. Replacing a file changes its owner, and keeps its mode unless `mode` is given.',
        consumes: ['application/octet-stream', 'multipart/form-data'],
        body: CONTENT,
        params: SandboxParams,
        querystring: UploadQuery,
        response: answers(200, UploadResult, [400, 401, 404, 409, 429, 502, 503, 504, 507]),
      },
      handler: async (request) => {
        const { organizationId, reach, query } = request;
        const { id } = request.params;
        const driver = await sandboxes.getDriver(reach, id);
        using stall = watchForStall(request, limits.transferStallMs, 'guest_unreachable');
        return await openRequests.limit(organizationId, async () => {
          using form = await openForm(request, stall.signal);
          const content = form?.content ?? request.raw;
          return await driver.use(async () => {
            const path = resolvePath(driver.row, query.path);
            const upload = { ...query, path, content, deadlineMs: UPLOAD_DEADLINE_MS, signal: stall.signal };
            const { path: written, size } = await runner.uploadFile(id, upload);
            await audit.append(id, { event: 'file.upload', data: { path: written, size } });
            return { path: written, size };
          });
        });
      },
      onError: async (request) => cutOff(request),
    });
  });
}

/** Opens the form before the sandbox is used: a body that is refused wakes no sandbox. */
async function openForm(
  { headers, raw }: FastifyRequest,
  signal: AbortSignal,
): Promise<FormFile | undefined> {
  return isForm(headers['content-type']) ? FormFile.open(raw, signal) : undefined;
}
