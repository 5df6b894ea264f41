import { FilePathQuery } from '@coppice/contract';
import { z } from 'zod';
import { answers, CONTENT, contents } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import { serveDownload, type DownloadParts } from './serve-download.ts';

const RAW = contents('The content', { 'application/octet-stream': CONTENT });

export function addDownloadFile(app: App, parts: DownloadParts): void {
  const route = (method: 'GET' | 'HEAD') =>
    app.route({
      method,
      url: '/v1/runs/:id/files/download',
      config: { access: 'read' },
      schema: {
        operationId: method === 'GET' ? 'downloadFile' : 'statFile',
        summary: method === 'GET' ? 'Read a file as raw bytes' : 'Get the size of a file',
        description:
          'One `Range: bytes=a-b` is honoured with 206. A file that the kernel generates during the read, such as ' +
          '`/proc/kallsyms`, has no Content-Length when it is longer than 256 KiB; a range of it is ignored.',
        params: SandboxParams,
        querystring: FilePathQuery,
        response: { ...answers(200, z.any(), [400, 401, 404, 409, 416, 429, 502, 503]), 200: RAW, 206: RAW },
      },
      handler: async (request, reply) => {
        const file = { id: request.params.id, path: request.query.path };
        return serveDownload({ request, reply }, file, parts);
      },
    });
  route('GET');
  route('HEAD');
}
