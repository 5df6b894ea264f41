import { AppError, UploadResult } from '@coppice/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { authenticate } from '../../access/authenticate.ts';
import { FILE_LINK_PREFIX } from '../../access/file-link-path.ts';
import { limitRate } from '../../access/rate-limit.ts';
import type { LinkedFile } from '../../../auth/file-links.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { addRawBodies, cutOff } from '../../requests/raw-body.ts';
import { receiveUpload, type UploadParts } from './receive-upload.ts';
import { serveDownload } from './serve-download.ts';

const URL = `${FILE_LINK_PREFIX}:token`;
/** Shorter than with an API key: few transfers by links may be open. */
const LINKED_UPLOAD_DEADLINE_MS = 3_600_000;
const Params = z.strictObject({ token: z.string() });

type Parts = UploadParts &
  Pick<HttpParts, 'authenticate' | 'keyGuesses' | 'keyEnds' | 'keyUses' | 'rateLimiter' | 'fileLinks'>;

/** Serves the URLs of links. No API key counts here, only the token in the path. */
export function addLinkedFile(app: App, parts: Parts): void {
  addRawBodies(app, (scope) => {
    scope.addHook('onRequest', async (request, reply) => enter(request, reply, parts));
    scope.route({
      method: ['GET', 'HEAD'],
      url: URL,
      config: { isFileLink: true },
      schema: { hide: true, params: Params },
      handler: async (request, reply) => {
        const { sandboxId: id, path } = open(request.params.token, 'download', parts);
        return parts.openRequests.transferByLink(request.organizationId, () =>
          serveDownload({ request, reply }, { id, path }, parts),
        );
      },
    });
    scope.route({
      method: ['PUT', 'POST'],
      url: URL,
      config: { isFileLink: true, hasRawBody: true },
      schema: { hide: true, params: Params, response: { 200: UploadResult } },
      handler: async (request) => {
        const { sandboxId: id, path } = open(request.params.token, 'upload', parts);
        if (request.keyScope !== 'full')
          throw new AppError('forbidden', 'the API key that requested the link has the scope "read"');
        const upload = { id, path, deadlineMs: LINKED_UPLOAD_DEADLINE_MS };
        return parts.openRequests.transferByLink(request.organizationId, () =>
          receiveUpload(request, upload, parts),
        );
      },
      onError: async (request) => cutOff(request),
    });
  });
}

/** The holder of a link acts for the key that requested it, within that key's reach and its organization's limits. */
async function enter(request: FastifyRequest, reply: FastifyReply, parts: Parts): Promise<void> {
  reply.header('cache-control', 'no-store').header('referrer-policy', 'no-referrer');
  await authenticate(request, reply, parts);
  limitRate(request, reply, parts);
}

function open(
  token: string,
  method: LinkedFile['method'],
  { fileLinks }: Pick<Parts, 'fileLinks'>,
): LinkedFile {
  const file = fileLinks.open(token);
  if (file.method === method) return file;
  throw new AppError(
    'forbidden',
    `the link allows only the method "${file.method}"; ask for one with method "${method}"`,
  );
}
