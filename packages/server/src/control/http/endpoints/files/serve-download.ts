import { pipeline } from 'node:stream/promises';
import http2 from 'node:http2';
import { AppError } from '@coppice/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { AuditNote } from '../../../audit/audit-chain.ts';
import type { RunnerAnswer } from '../../../placement/runner-connection.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';
import type { HttpParts } from '../../parts.ts';
import { buildSafeHeaders, readContent } from '../../answers/guest-content.ts';
import { beginRawAnswer } from '../../answers/raw-answer.ts';
import { sendBody } from '../../answers/send-body.ts';

export type DownloadParts = Pick<HttpParts, 'sandboxes' | 'audit' | 'openRequests' | 'limits'>;

/** Answers an authenticated GET or HEAD with a file of a sandbox. */
export async function serveDownload(
  { request, reply }: { request: FastifyRequest; reply: FastifyReply },
  { id, ...file }: { id: string; path: string },
  { sandboxes, audit, openRequests, limits }: DownloadParts,
): Promise<FastifyReply> {
  const driver = await sandboxes.getDriver(request.reach, id);
  const path = resolvePath(driver.row, file.path);
  const range = readRange(request.headers.range);
  // Also for HEAD: its refusals have no body that explains them, so the status must be that of the GET.
  const download = { path, ...(range === undefined ? {} : { range }) };
  const send = async (): Promise<void> => {
    const answer = await driver.runner.downloadFile(id, download);
    const head = buildHead(answer, path);
    if (request.method === 'HEAD') return sendHead(reply, answer, head);
    const content = readContent(answer, head.sizeBytes);
    await content.logged(() => audit.append(id, buildNote(path, head)));
    const body = { status: answer.status, headers: head.headers, stallMs: limits.transferStallMs };
    return sendBody(reply, body, (raw) => pipeline(content.body, raw));
  };
  await openRequests.limit(request.organizationId, () =>
    driver.use(send, { mayWake: request.keyScope === 'full' }),
  );
  return reply;
}

/** Accepts one plain range only. Other values are ignored, as RFC 9110 allows, and the whole file is sent. */
function readRange(header: string | undefined): string | undefined {
  return header !== undefined && /^bytes=(\d{1,15}-\d{0,15}|-\d{1,15})$/.test(header) ? header : undefined;
}

/** The size is logged before the body is sent: a client that leaves early has received less. */
function buildNote(path: string, { sizeBytes }: Head): AuditNote {
  return { event: 'file.download', data: { path, size: sizeBytes } };
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

/** The guest chooses these headers, so only valid ones are passed on. Throws `guest_unreachable` for others. */
function buildHead({ status, headers, stream }: RunnerAnswer, path: string): Head {
  const safe = buildSafeHeaders(path);
  const length = headers['content-length'];
  const range = headers['content-range'];
  if (status === 200 && length === undefined) return { headers: safe, sizeBytes: null };
  const isRangeRight = status === 206 ? /^bytes \d+-\d+\/\d+$/.test(String(range)) : status === 200;
  if (length === undefined || !/^\d{1,15}$/.test(length) || !isRangeRight) {
    stream.close(http2.constants.NGHTTP2_CANCEL);
    throw new AppError('guest_unreachable', 'the agent sent a file without its size');
  }
  return {
    headers: {
      ...safe,
      'content-length': length,
      'accept-ranges': 'bytes',
      ...(status === 206 ? { 'content-range': String(range) } : {}),
    },
    sizeBytes: Number(length),
  };
}
