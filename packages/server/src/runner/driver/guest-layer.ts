/** Reads what a VM's guest has changed in its image. The guest is hostile: any bytes may come, and at any pace. */
import http2 from 'node:http2';
import { AppError } from '@coppice/contract';
import { plainText } from '../../lib/text/plain-text.ts';
import { stretched, withDeadline } from '../../lib/waiting/deadline.ts';
import type { AgentSession } from '../agent-client/agent-session.ts';

const PATH = '/layer';
const KIB = 1024;
const MAX_ANSWER_BYTES = 4096;
const MAX_REASON = 500;
const OUTCOME = 'layer-outcome';
const WHOLE = 'whole';

/** How slow a guest may be. Only the time in which this process waits for it counts. */
export interface GuestPace {
  /** How long it may send nothing. It first freezes its programs, which takes seconds at most. */
  silenceMs: number;
  /** How long it may send less than `bytesPerSecond` on average. */
  graceMs: number;
  bytesPerSecond: number;
}

/** An ordinary guest sends tens of MiB a second. Of empty files, links and whiteouts it sends less than a KiB each. */
const PACE: GuestPace = { silenceMs: 60_000, graceMs: 30_000, bytesPerSecond: 64 * KIB };

/** Yields the archive. Throws `guest_unreachable` or `invalid_state` unless the guest says at its end that it is whole. */
export async function* readGuestLayer(
  session: Pick<AgentSession, 'request'>,
  signal: AbortSignal,
  pace = PACE,
): AsyncGenerator<Buffer> {
  const stream = open(session);
  const cancel = (): void => stream.close(http2.constants.NGHTTP2_CANCEL);
  signal.addEventListener('abort', cancel, { once: true });
  // The errors are thrown by the iteration below.
  stream.on('error', () => undefined);
  let outcome: unknown;
  stream.on('trailers', (trailers) => (outcome = trailers[OUTCOME]));
  try {
    const status = await withDeadline('the head of the layer', pace.silenceMs, statusOf(stream));
    if (status !== 200)
      throw await withDeadline('the refusal of the layer', pace.silenceMs, refusalOf(stream));
    yield* inTime(stream as AsyncIterable<Buffer>, pace);
  } catch (error) {
    signal.throwIfAborted();
    throw error instanceof AppError ? error : brokenOff(error);
  } finally {
    signal.removeEventListener('abort', cancel);
    cancel();
  }
  signal.throwIfAborted();
  if (outcome === WHOLE) return;
  if (typeof outcome !== 'string') throw brokenOff(undefined);
  throw new AppError(
    'invalid_state',
    `the files of the sandbox cannot become an image: ${plainText(outcome, MAX_REASON)}`,
  );
}

/** Throws if the guest is silent, or sends something again and again, but too little. */
async function* inTime(
  stream: AsyncIterable<Buffer>,
  { silenceMs, graceMs, bytesPerSecond }: GuestPace,
): AsyncGenerator<Buffer> {
  const chunks = stream[Symbol.asyncIterator]();
  let bytes = 0;
  let waitedMs = 0;
  for (;;) {
    const sinceMs = performance.now();
    const next = await withDeadline('the next bytes of the layer', silenceMs, chunks.next());
    if (next.done === true) return;
    waitedMs += performance.now() - sinceMs;
    bytes += next.value.length;
    if (waitedMs > stretched(graceMs + (bytes * 1000) / bytesPerSecond)) throw tooSlow(bytes, waitedMs);
    yield next.value;
  }
}

function open(session: Pick<AgentSession, 'request'>): http2.ClientHttp2Stream {
  try {
    return session.request({ ':method': 'GET', ':path': PATH });
  } catch (error) {
    throw brokenOff(error);
  }
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
  const found = /"message":\s*("(?:[^"\\]|\\.){0,500}")/u.exec(text)?.[1];
  const reason = found === undefined ? undefined : tryParse(found);
  const told = typeof reason === 'string' ? plainText(reason, MAX_REASON) : 'the agent gave no reason';
  return new AppError('invalid_state', `the files of the sandbox cannot be read: ${told}`);
}

function tryParse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function tooSlow(bytes: number, waitedMs: number): AppError {
  const seconds = Math.round(waitedMs / 1000);
  return new AppError(
    'guest_unreachable',
    `the agent in the sandbox is too slow: it sent ${bytes} bytes of its files in ${seconds} s`,
  );
}

function brokenOff(cause: unknown): AppError {
  return new AppError('guest_unreachable', 'the agent in the sandbox did not send its files to their end', {
    cause,
  });
}
