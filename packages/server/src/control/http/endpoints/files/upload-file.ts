import { UploadQuery, UploadResult } from '@coppice/contract';
import { answers, CONTENT } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { addRawBodies, cutOff } from '../../requests/raw-body.ts';
import { SandboxParams } from '../../requests/params.ts';
import { receiveUpload, type UploadParts } from './receive-upload.ts';

/** The body is piped to the guest as it comes. If it breaks off, its stream is reset and the guest keeps nothing. */
export function addUploadFile(app: App, parts: UploadParts): void {
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
      handler: async (request) => receiveUpload(request, { id: request.params.id, ...request.query }, parts),
      onError: async (request) => cutOff(request),
    });
  });
}
