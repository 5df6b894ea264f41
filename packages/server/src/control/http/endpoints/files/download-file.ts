import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import http2 from 'node:http2';
import { AppError, FilePathQuery } from '@coppice/contract';
import type { FastifyReply } from 'fastify';
import { z } from 'zod';
import { watchEnd } from '../../../../lib/streams/whole-stream.ts';
import type { AuditNote } from '../../../audit/audit-chain.ts';
import type { RunnerAnswer } from '../../../placement/runner-connection.ts';
import { answers, CONTENT, contents } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';
import { beginRawAnswer } from '../../answers/raw-answer.ts';
import { sendBody } from '../../answers/send-body.ts';

const RAW = contents('The content', { 'application/octet-stream': CONTENT });

type Parts = Pick<HttpParts, 'sandboxes' | 'runner' | 'audit' | 'openRequests' | 'limits'>;

export function addDownloadFile(app: App, { sandboxes, runner, audit, openRequests, limits }: Parts): void {
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
        const { id } = request.params;
        const { path } = request.query;
        const driver = await sandboxes.getDriver(request.reach, id);
        const range = readRange(request.headers.range);
        // Also for HEAD: its refusals have no body that explains them, so the status must be that of the GET.
        const resolved = resolvePath(driver.row, path);
        const download = { path: resolved, ...(range === undefined ? {} : { range }) };
        await openRequests.limit(request.organizationId, () =>
          driver.use(
            async () => {
              const answer = await runner.downloadFile(id, download);
              const head = buildHead(answer);
              if (method === 'HEAD') return sendHead(reply, answer, head);
              await noteDownload(answer, () => audit.append(id, buildNote(path, head)));
              const body = { status: answer.status, headers: head.headers, stallMs: limits.transferStallMs };
              return sendBody(reply, body, (raw) => pipeline(answer.stream, whole(answer, head), raw));
            },
            { mayWake: request.keyScope === 'full' },
          ),
        );
        return reply;
      },
    });
  route('GET');
  route('HEAD');
}

/** Accepts one plain range only. Other values are ignored, as RFC 9110 allows, and the whole file is sent. */
function readRange(header: string | undefined): string | undefined {
  return header !== undefined && /^bytes=(\d{1,15}-\d{0,15}|-\d{1,15})$/.test(header) ? header : undefined;
}

/** The size is logged before the body is sent: a client that leaves early has received less. */
function buildNote(path: string, { sizeBytes }: Head): AuditNote {
  return { event: 'file.download', data: { path, size: sizeBytes } };
}

/** Cancels the download when its audit entry cannot be appended: nothing is read without an entry. */
async function noteDownload({ stream }: RunnerAnswer, append: () => Promise<unknown>): Promise<void> {
  try {
    await append();
  } catch (error) {
    stream.close(http2.constants.NGHTTP2_CANCEL);
    throw error;
  }
}

function sendHead(reply: FastifyReply, { stream, status }: RunnerAnswer, { headers }: Head): void {
  stream.close(http2.constants.NGHTTP2_CANCEL);
  beginRawAnswer(reply, status, headers).end();
}

interface Head {
  headers: Record<string, string>;
  /** Null when the size is unknown until the end. */
  sizeBytes: number | null;
}

const SAFE_HEADERS = {
  'content-type': 'application/octet-stream',
  // The content is the guest's: a browser must not render it as a page of this origin.
  'content-disposition': 'attachment',
  'x-content-type-options': 'nosniff',
};

/** The guest chooses these headers, so only valid ones are passed on. Throws `guest_unreachable` for others. */
function buildHead({ status, headers, stream }: RunnerAnswer): Head {
  const length = headers['content-length'];
  const range = headers['content-range'];
  if (status === 200 && length === undefined) return { headers: SAFE_HEADERS, sizeBytes: null };
  const isRangeRight = status === 206 ? /^bytes \d+-\d+\/\d+$/.test(String(range)) : status === 200;
  if (length === undefined || !/^\d{1,15}$/.test(length) || !isRangeRight) {
    stream.close(http2.constants.NGHTTP2_CANCEL);
    throw new AppError('guest_unreachable', 'the agent sent a file without its size');
  }
  return {
    headers: {
      ...SAFE_HEADERS,
      'content-length': length,
      'accept-ranges': 'bytes',
      ...(status === 206 ? { 'content-range': String(range) } : {}),
    },
    sizeBytes: Number(length),
  };
}

/** Fails unless exactly the announced bytes pass, or, without an announced size, the agent itself ended the stream. */
function whole({ stream }: RunnerAnswer, { sizeBytes }: Head): Transform {
  const endsByItself = watchEnd(stream);
  let left = sizeBytes ?? Infinity;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      left -= chunk.length;
      if (left < 0) done(new Error('more bytes than announced'));
      else done(null, chunk);
    },
    flush(done) {
      const isWhole = sizeBytes === null ? endsByItself() : left === 0;
      done(isWhole ? null : new Error('the file was cut off'));
    },
  });
}
