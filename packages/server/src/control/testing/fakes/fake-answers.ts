/** Helpers that make the answers of the fake runner. */
import type { ServerHttp2Stream } from 'node:http2';
import { AppError } from '@coppice/contract';

export function answer(stream: ServerHttp2Stream, status: number, body: unknown): void {
  if (stream.destroyed || stream.closed) return;
  stream.respond({ ':status': status, 'content-type': 'application/json' });
  stream.end(JSON.stringify(body));
}

export function answerError(stream: ServerHttp2Stream, error: unknown): void {
  const known = error instanceof AppError ? error : new AppError('internal', String(error));
  if (!stream.headersSent)
    answer(stream, known.status, { error: { code: known.code, message: known.message } });
}

export async function readAll(stream: ServerHttp2Stream): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

export function noVm(id: string): AppError {
  return new AppError('not_found', `there is no VM ${id}`);
}
