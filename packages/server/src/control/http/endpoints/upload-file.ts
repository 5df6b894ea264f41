import { AppError, UploadQuery, UploadResult } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import { answers, CONTENT } from '../answers.ts';
import type { App } from '../app.ts';
import { SandboxParams } from '../params.ts';
import type { HttpParts } from '../parts.ts';

/** Longest time without a byte moving, in either direction. */
const STALL_MS = 120_000;
/** Longest whole upload. */
const UPLOAD_DEADLINE_MS = 24 * 3_600_000;
/** How long a client may go on sending after it was answered with an error. */
const LINGER_MS = 10_000;

type Parts = Pick<HttpParts, 'sandboxes' | 'runner' | 'audit' | 'openRequests'>;

/** The body is piped to the guest as it comes. When it breaks, its stream is reset and the guest keeps nothing of it. */
export function addUploadFile(app: App, { sandboxes, runner, audit, openRequests }: Parts): void {
  void app.register(async (scope: App) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, _payload, done) => done(null));
    scope.route({
      method: 'POST',
      url: '/v1/runs/:id/files/upload',
      config: { access: 'full', hasRawBody: true },
      schema: {
        operationId: 'uploadFile',
        summary: 'Write a file: the body is its content, as raw bytes of any content type',
        consumes: ['application/octet-stream'],
        body: CONTENT,
        params: SandboxParams,
        querystring: UploadQuery,
        response: answers(200, UploadResult, [400, 401, 404, 409, 429, 502, 503, 504, 507]),
      },
      handler: async (request) => {
        const { organizationId, reach, query } = request;
        const { id } = request.params;
        const driver = await sandboxes.getDriver(reach, id);
        using stall = watchForStall(request);
        const upload = {
          path: query.path,
          ...(query.mode === undefined ? {} : { mode: query.mode }),
          content: request.raw,
          deadlineMs: UPLOAD_DEADLINE_MS,
          signal: stall.signal,
        };
        return openRequests.limit(organizationId, () =>
          driver.use(async () => {
            const { path, size } = await runner.uploadFile(id, upload);
            await audit.append(id, { event: 'file.upload', data: { path, size } });
            return { path, size };
          }),
        );
      },
      onError: async (request) => cutOff(request),
    });
  });
}

function watchForStall({ raw }: FastifyRequest): Disposable & { signal: AbortSignal } {
  const controller = new AbortController();
  const stalled = () => {
    controller.abort(new AppError('guest_unreachable', `the upload did not move for ${STALL_MS / 1000} s`));
  };
  raw.socket.setTimeout(STALL_MS);
  raw.on('timeout', stalled);
  return {
    signal: controller.signal,
    [Symbol.dispose]: () => {
      raw.off('timeout', stalled);
      raw.socket.setTimeout(0);
    },
  };
}

/** Node reads on and throws away what a refused client still sends, so that it can read the answer: not for ever. */
function cutOff({ raw }: FastifyRequest): void {
  if (raw.complete) return;
  const { socket } = raw;
  const timer = setTimeout(() => raw.complete || socket.destroy(), LINGER_MS).unref();
  raw.once('end', () => clearTimeout(timer));
  socket.once('close', () => clearTimeout(timer));
}
