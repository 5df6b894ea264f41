import type http2 from 'node:http2';
import { AppError } from '@coppice/contract';

/** The largest body is a network policy with 10,000 rules, plus grants. */
const BODY_LIMIT_BYTES = 4 << 20;

export async function readJson(stream: http2.ServerHttp2Stream): Promise<unknown> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > BODY_LIMIT_BYTES)
      throw new AppError('payload_too_large', `the body is over ${BODY_LIMIT_BYTES} bytes`);
    chunks.push(chunk);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8')) as unknown;
  } catch (error) {
    throw new AppError('invalid_request', 'the body is not JSON', { cause: error });
  }
}

export function respondJson(stream: http2.ServerHttp2Stream, status: number, body: unknown): void {
  if (stream.destroyed) return;
  stream.respond({ ':status': status, 'content-type': 'application/json' });
  stream.end(JSON.stringify(body));
}

/** Answers that a reservation is held. It lasts as long as the stream is open, so a killed caller also releases it. */
export function holdPlace(stream: http2.ServerHttp2Stream, place: Disposable): void {
  if (stream.destroyed) {
    place[Symbol.dispose]();
    return;
  }
  stream.once('close', () => place[Symbol.dispose]());
  stream.respond({ ':status': 200 });
}

export function respondEmpty(stream: http2.ServerHttp2Stream): void {
  if (!stream.destroyed) stream.respond({ ':status': 204 }, { endStream: true });
}

/** Sends an error. Once the head is sent, a reset is the only possible signal. */
export function respondError(stream: http2.ServerHttp2Stream, error: AppError): void {
  if (stream.destroyed) return;
  if (stream.headersSent) {
    stream.destroy();
    return;
  }
  respondJson(stream, error.status, { error: { code: error.code, message: error.message } });
}

/** Writes one JSON value as a line. */
export function writeLine(stream: http2.ServerHttp2Stream, value: unknown): void {
  if (!stream.destroyed) stream.write(`${JSON.stringify(value)}\n`);
}
