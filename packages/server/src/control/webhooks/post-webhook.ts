/**
 * Sends one message to a receiver that is not trusted: it may hang, answer without an end, or redirect. Nothing of it
 * is kept but the status and the first kilobyte; a redirect is an answer like any other.
 */
import { request as requestHttp, type ClientRequest, type IncomingMessage } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP } from 'node:net';
import type { SecureContext } from 'node:tls';
import { ReceiverError, type Receiver } from './receivers.ts';

const CONNECT_DEADLINE_MS = 5_000;
/** Time before the next address is tried. Node's default is less than the way around the world takes. */
const DIALLING = { autoSelectFamilyAttemptTimeout: 2_000 };
const MAX_RESPONSE_BYTES = 1024;
const MAX_HEADER_BYTES = 16 << 10;

export interface WebhookMessage {
  headers: Record<string, string>;
  body: string;
  /** The authorities by which it is verified. */
  trust: () => SecureContext;
  /** Of the whole exchange. */
  deadlineMs: number;
  signal: AbortSignal;
}

export interface WebhookAnswer {
  status: number;
  /** The first kilobyte, as text. */
  response: string;
}

/** Throws {@link ReceiverError} without an answer. */
export async function postWebhook(
  { url, addresses }: Receiver,
  { headers, body, trust, deadlineMs, signal }: WebhookMessage,
): Promise<WebhookAnswer> {
  const isTls = url.protocol === 'https:';
  const host = url.hostname.replace(/^\[|\]$/gu, '');
  const request = (isTls ? requestHttps : requestHttp)({
    method: 'POST',
    host,
    // Nothing but the judged addresses is dialled. An address as host needs no look-up, and was judged itself.
    lookup: (_host, { all }, done) => {
      const [first] = addresses;
      if (all === true) done(null, [...addresses]);
      else done(null, first?.address ?? '', first?.family);
    },
    ...DIALLING,
    port: url.port === '' ? (isTls ? 443 : 80) : url.port,
    path: `${url.pathname}${url.search}`,
    headers: {
      ...headers,
      host: url.host,
      'content-length': String(Buffer.byteLength(body)),
      connection: 'close',
    },
    agent: false,
    signal,
    maxHeaderSize: MAX_HEADER_BYTES,
    ...(isTls ? { secureContext: trust() } : {}),
    ...(isTls && isIP(host) === 0 ? { servername: host } : {}),
  });
  const timer = setTimeout(() => request.destroy(new Error(`no answer within ${deadlineMs} ms`)), deadlineMs);
  try {
    return await exchange(request, body);
  } catch (cause) {
    throw new ReceiverError(describe(cause), { cause });
  } finally {
    clearTimeout(timer);
    request.destroy();
  }
}

async function exchange(request: ClientRequest, body: string): Promise<WebhookAnswer> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const connecting = setTimeout(
    () => request.destroy(new Error(`no connection within ${CONNECT_DEADLINE_MS} ms`)),
    CONNECT_DEADLINE_MS,
  );
  request.once('socket', (socket) => {
    const event = 'encrypted' in socket ? 'secureConnect' : 'connect';
    socket.once(event, () => clearTimeout(connecting));
  });
  request.once('response', resolve);
  // Stays, as a request that is destroyed may report another error.
  request.on('error', reject);
  // A receiver that switches to another protocol causes neither an answer nor an error.
  request.once('close', () => reject(new Error('the connection ended without an answer')));
  request.end(body);
  try {
    const answer = await promise;
    return { status: answer.statusCode ?? 0, response: await readStart(answer) };
  } finally {
    clearTimeout(connecting);
  }
}

/** Reads the first kilobyte. A body that breaks off does not change the status, which is what counts. */
async function readStart(answer: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      sizeBytes += chunk.length;
      if (sizeBytes >= MAX_RESPONSE_BYTES) break;
    }
  } catch {
    // The part that came is shown.
  }
  // PostgreSQL stores no NUL.
  return Buffer.concat(chunks).subarray(0, MAX_RESPONSE_BYTES).toString('utf8').replaceAll('\0', '�');
}

const MAX_ERROR_LENGTH = 200;

function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code } = error as { code?: unknown };
  const text = error.message === '' && typeof code === 'string' ? code : error.message;
  return text.replaceAll('\0', '�').slice(0, MAX_ERROR_LENGTH);
}
