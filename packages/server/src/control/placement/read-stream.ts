/** Reads what another process sends, up to a limit and a deadline. */
import { StringDecoder } from 'node:string_decoder';
import type { ClientHttp2Stream } from 'node:http2';
import http2 from 'node:http2';
import { AppError } from '@coppice/contract';
import { watchEnd } from '../../lib/streams/whole-stream.ts';
import { stretched } from '../../lib/waiting/deadline.ts';

export interface ReadLimits {
  maxBytes: number;
  deadlineMs: number;
}

/** Reads the whole body. Rejects with `guest_unreachable` if it is cut off, too long, or late. */
export async function readBounded(stream: ClientHttp2Stream, limits: ReadLimits): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of readChunks(stream, stretched(limits.deadlineMs))) {
    size += chunk.length;
    if (size > limits.maxBytes)
      throw new AppError('guest_unreachable', `an answer is over ${limits.maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** Yields the chunks of a body. Throws if the body is cut off or late. Leaving the loop early resets the stream. */
async function* readChunks(stream: ClientHttp2Stream, deadlineMs: number): AsyncGenerator<Buffer> {
  const late = new AppError('guest_unreachable', `the answer did not end within ${deadlineMs} ms`);
  const timer = setTimeout(() => stream.destroy(late), deadlineMs);
  const isWhole = watchEnd(stream);
  try {
    for await (const chunk of stream) yield chunk as Buffer;
    if (!isWhole()) throw new AppError('guest_unreachable', 'the answer was cut off');
  } catch (error) {
    throw error instanceof AppError
      ? error
      : new AppError('guest_unreachable', 'the answer was cut off', { cause: error });
  } finally {
    clearTimeout(timer);
    if (!stream.closed) stream.close(http2.constants.NGHTTP2_CANCEL);
  }
}

export interface LineLimits {
  maxLineBytes: number;
  /** Longest silence between two chunks. The time that the reader takes for the lines does not count. */
  idleDeadlineMs: number;
  signal?: AbortSignal | undefined;
}

/** Yields the lines of an NDJSON body without empty ones, which are heartbeats. */
export async function* readLines(stream: ClientHttp2Stream, limits: LineLimits): AsyncGenerator<string> {
  const decoder = new StringDecoder('utf8');
  const idleMs = stretched(limits.idleDeadlineMs);
  const silent = () => stream.destroy(new AppError('guest_unreachable', `silent for ${idleMs} ms`));
  let timer = setTimeout(silent, idleMs);
  const abort = () => stream.close(http2.constants.NGHTTP2_CANCEL);
  limits.signal?.addEventListener('abort', abort, { once: true });
  let pending = '';
  try {
    for await (const chunk of stream) {
      clearTimeout(timer);
      const lines = (pending + decoder.write(chunk as Buffer)).split('\n');
      pending = lines.pop() ?? '';
      if (pending.length > limits.maxLineBytes)
        throw new RangeError(`a line is over ${limits.maxLineBytes} bytes`);
      for (const line of lines) if (line !== '') yield line;
      timer = setTimeout(silent, idleMs);
    }
  } finally {
    clearTimeout(timer);
    limits.signal?.removeEventListener('abort', abort);
    if (!stream.closed) stream.close(http2.constants.NGHTTP2_CANCEL);
  }
}
