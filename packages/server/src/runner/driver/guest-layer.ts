/** Reads what a VM's guest has changed in its image. The guest is hostile: any bytes may come, and at any pace. */
import http2 from 'node:http2';
import { AppError } from '@coppice/contract';
import { stretched } from '../../lib/waiting/deadline.ts';
import type { AgentSession } from '../agent-client/agent-session.ts';

const PATH = '/layer';
/** How long the guest may send nothing. It first freezes its programs, which takes seconds at most. */
const SILENCE_MS = 60_000;
const MAX_ANSWER_BYTES = 4096;
const OUTCOME = 'layer-outcome';
const WHOLE = 'whole';

/** Yields the archive. Throws `guest_unreachable` or `invalid_state` unless the guest says at its end that it is whole. */
export async function* readGuestLayer(
  session: Pick<AgentSession, 'request'>,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  const stream = session.request({ ':method': 'GET', ':path': PATH });
  const cancel = (): void => stream.close(http2.constants.NGHTTP2_CANCEL);
  signal.addEventListener('abort', cancel, { once: true });
  let isSilent = false;
  stream.setTimeout(stretched(SILENCE_MS), () => {
    isSilent = true;
    cancel();
  });
  // The errors are thrown by the iteration below.
  stream.on('error', () => undefined);
  let outcome: unknown;
  stream.on('trailers', (trailers) => (outcome = trailers[OUTCOME]));
  try {
    const status = await statusOf(stream);
    if (status !== 200) throw await refusalOf(stream);
    for await (const chunk of stream as AsyncIterable<Buffer>) yield chunk;
  } catch (error) {
    signal.throwIfAborted();
    if (isSilent || !(error instanceof AppError)) throw brokenOff(error);
    throw error;
  } finally {
    signal.removeEventListener('abort', cancel);
    cancel();
  }
  signal.throwIfAborted();
  if (outcome === WHOLE) return;
  if (typeof outcome !== 'string') throw brokenOff(undefined);
  throw new AppError(
    'invalid_state',
    `the files of the sandbox cannot become an image: ${outcome.slice(0, 500)}`,
  );
}

function statusOf(stream: http2.ClientHttp2Stream): Promise<number> {
  const head = Promise.withResolvers<number>();
  stream.once('response', (headers) => head.resolve(headers[':status'] ?? 0));
  stream.once('error', (error) => head.reject(error));
  stream.once('close', () => head.reject(new Error('the stream was closed')));
  stream.end();
  return head.promise;
}

async function refusalOf(stream: http2.ClientHttp2Stream): Promise<AppError> {
  let text = '';
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    text += chunk.toString('utf8');
    if (text.length > MAX_ANSWER_BYTES) break;
  }
  const reason = /"message":\s*"((?:[^"\\]|\\.){0,500})"/u.exec(text)?.[1] ?? 'the agent gave no reason';
  return new AppError('invalid_state', `the files of the sandbox cannot be read: ${reason}`);
}

function brokenOff(cause: unknown): AppError {
  return new AppError('guest_unreachable', 'the agent in the sandbox did not send its files to their end', {
    cause,
  });
}
