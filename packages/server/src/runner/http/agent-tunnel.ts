/**
 * Joins a stream of control with a stream of the agent. Bytes are piped, not re-framed, with back-pressure both ways. A
 * reset on one side resets the other: a client that leaves ends its command, and a guest that dies ends the answer. Of
 * the agent's headers only those below are passed on, because the guest writes them.
 */
import http2 from 'node:http2';
import { AppError, isErrorCode, type ErrorCode } from '@coppice/contract';
import { watchEnd } from '../../lib/streams/whole-stream.ts';
import type { AgentSession } from '../agent-client/agent-session.ts';
import { stretched } from '../../lib/waiting/deadline.ts';

const { NGHTTP2_CANCEL, NGHTTP2_NO_ERROR } = http2.constants;
/**
 * A guest under load starts a process slowly; a guest that never answers is cut off. An upload is answered at its end,
 * so the timeout counts from the last byte that the guest read.
 */
const HEADERS_TIMEOUT_MS = 60_000;
const ERROR_BODY_LIMIT_BYTES = 8192;
const REFUSAL_TIMEOUT_MS = 5000;
const PASSED_HEADERS = ['content-type', 'content-length', 'content-range', 'accept-ranges', 'coppice-next'];

export interface TunnelRequest {
  method: string;
  path: string;
  headers: http2.OutgoingHttpHeaders;
}

/** Pipes `stream` (of control) to the agent. Throws AppError only before the answer has begun. */
export async function tunnelToAgent(
  stream: http2.ServerHttp2Stream,
  session: Pick<AgentSession, 'request'>,
  request: TunnelRequest,
): Promise<void> {
  // Its end, which would end the request to the agent, came while the session was opened.
  if (stream.destroyed) return;
  const upstream = session.request({ ':method': request.method, ':path': request.path, ...request.headers });
  linkResets(stream, upstream);
  stream.pipe(upstream);
  const head = await awaitHead(stream, upstream);
  const status = head[':status'] ?? 502;
  if (!isAnswer(status, request)) {
    // Ends the read: the refusal is judged by the bytes received until then.
    const timer = setTimeout(() => upstream.destroy(), stretched(REFUSAL_TIMEOUT_MS));
    const refusal = await readRefusal(upstream, status);
    clearTimeout(timer);
    throw refusal;
  }
  if (stream.destroyed) return;
  stream.respond({ ':status': status, ...passHeaders(head) });
  const isWhole = watchEnd(upstream);
  upstream.pipe(stream, { end: false });
  upstream.once('end', () => (isWhole() ? stream.end() : cutOff(stream)));
}

/** Whether the status is a success by the protocol. A hostile agent may send any status with any body. */
function isAnswer(status: number, { headers }: TunnelRequest): boolean {
  if (status === 206 || status === 416) return headers['range'] !== undefined;
  return status === 200;
}

/**
 * A broken body must not look complete. `close(code)` on a half-written stream sends the end of the stream before the
 * reset, so a part of a file would pass for the whole file. Broken streams are therefore destroyed. Before the answer's
 * head, `awaitHead` turns a broken agent into an error status.
 */
function linkResets(stream: http2.ServerHttp2Stream, upstream: http2.ClientHttp2Stream): void {
  const breakOff = (): void => {
    upstream.destroy();
  };
  stream.on('error', breakOff);
  stream.on('aborted', breakOff);
  stream.on('close', () => {
    if (!upstream.closed) breakOff();
  });
  upstream.on('error', () => cutOff(stream));
  upstream.on('close', () => {
    // Without its end: when a connection closes, Node drops what of its streams has not been read.
    if (upstream.rstCode !== NGHTTP2_NO_ERROR || !upstream.readableEnded) cutOff(stream);
  });
}

/** Resets a started answer after the bytes written so far. */
function cutOff(stream: http2.ServerHttp2Stream): void {
  if (!stream.headersSent || stream.writableEnded || stream.destroyed) return;
  stream.write('', () => stream.destroy(new Error('the agent broke off its answer')));
}

type ResponseHead = http2.IncomingHttpHeaders & http2.IncomingHttpStatusHeader;

function awaitHead(
  stream: http2.ServerHttp2Stream,
  upstream: http2.ClientHttp2Stream,
): Promise<ResponseHead> {
  const head = Promise.withResolvers<ResponseHead>();
  const wait = () => setTimeout(() => upstream.close(NGHTTP2_CANCEL), stretched(HEADERS_TIMEOUT_MS));
  let timer = wait();
  const prolong = (): void => {
    clearTimeout(timer);
    timer = wait();
  };
  const fail = (): void => {
    head.reject(new AppError('guest_unreachable', 'the agent in the sandbox did not answer'));
  };
  stream.on('data', prolong);
  upstream.once('response', head.resolve);
  upstream.once('error', fail);
  upstream.once('close', fail);
  return head.promise.finally(() => {
    clearTimeout(timer);
    stream.off('data', prolong);
  });
}

function passHeaders(head: ResponseHead): http2.OutgoingHttpHeaders {
  const passed: http2.OutgoingHttpHeaders = {};
  for (const name of PASSED_HEADERS) {
    const value = head[name];
    if (typeof value === 'string') passed[name] = value;
  }
  return passed;
}

/** A guest keeps its agent when the service is upgraded, also in snapshots and through hibernation. */
const OLDER_AGENT =
  'the sandbox runs the agent of an older version of this service, which cannot do this; create a new sandbox';

/** Codes that the agent may use; any other code is a fault of the guest. */
const AGENT_CODES = new Set<ErrorCode>([
  'invalid_request',
  'invalid_image',
  'invalid_state',
  'already_exists',
  'file_not_found',
  'file_error',
  'disk_full',
  'capacity',
  'port_unreachable',
]);

async function readRefusal(upstream: http2.ClientHttp2Stream, status: number): Promise<AppError> {
  // The agent may also break off here, or send more than it announced: then it has given no reason.
  const body = parseRefusal(await readText(upstream).catch(() => ''));
  if (status === 404 && body?.code === 'not_found') return new AppError('agent_outdated', OLDER_AGENT);
  if (body === undefined || !AGENT_CODES.has(body.code)) {
    return new AppError(
      'guest_unreachable',
      `the agent in the sandbox answered with an unexpected status ${status}`,
    );
  }
  return new AppError(body.code, body.message.slice(0, 1000));
}

async function readText(upstream: http2.ClientHttp2Stream): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of upstream as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > ERROR_BODY_LIMIT_BYTES) break;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function parseRefusal(text: string): { code: ErrorCode; message: string } | undefined {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof body !== 'object' || body === null) return undefined;
  const { code, message } = body as Record<string, unknown>;
  return isErrorCode(code) && typeof message === 'string' ? { code, message } : undefined;
}
