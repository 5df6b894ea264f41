/** Sends content of any kind as the body of a request. */
import { watchUpload } from './bytes.ts';
import { Deadline } from './deadline.ts';
import { labelOf, type CallRequest, type Transport } from './transport.ts';

/** Bounds the time of an upload of known size. Every usable link is faster. */
const SLOWEST_UPLOAD_BYTES_PER_SECOND = 32_768;

/** Content of an upload. A string is written as UTF-8. */
export type FileContent = string | Uint8Array | Blob | ReadableStream<Uint8Array>;

/** Sends the request with the content as its body. Throws `TypeError` for content of another kind. */
export async function sendContent<Value>(
  transport: Transport,
  request: CallRequest,
  { content, parse }: { content: FileContent; parse: (value: unknown) => Value },
): Promise<Value> {
  const upload = { ...request, headers: { 'content-type': 'application/octet-stream' } };
  if (content instanceof ReadableStream) return sendStream(transport, upload, { source: content, parse });
  const body = typeof content === 'string' ? new TextEncoder().encode(content) : requireBytes(content);
  const timeoutMs =
    (request.timeoutMs ?? transport.timeoutMs) + (sizeOf(body) / SLOWEST_UPLOAD_BYTES_PER_SECOND) * 1000;
  return (await transport.callJson({ ...upload, body, timeoutMs }, parse)).value;
}

async function sendStream<Value>(
  transport: Transport,
  request: CallRequest,
  { source, parse }: { source: ReadableStream<Uint8Array>; parse: (value: unknown) => Value },
): Promise<Value> {
  const timeoutMs = request.timeoutMs ?? transport.timeoutMs;
  const deadline = new Deadline(labelOf(request), timeoutMs, request.signal);
  const upload = watchUpload(source, deadline, timeoutMs);
  try {
    // A stream can be read only once, so the request cannot be retried.
    const once = { ...request, body: upload.body, idempotent: false };
    return (await transport.callJsonWithin(once, deadline, parse)).value;
  } catch (error) {
    const failure = upload.failure();
    throw failure === undefined || deadline.signal.aborted ? error : failure.error;
  } finally {
    upload.abandon(deadline.reasonFor(new Error('the upload is over')));
    deadline.end();
  }
}

function requireBytes(content: unknown): Uint8Array | Blob {
  if (content instanceof Uint8Array || content instanceof Blob) return content;
  throw new TypeError(
    'content must be a string, Uint8Array, Blob or ReadableStream; convert a Node stream with Readable.toWeb()',
  );
}

function sizeOf(body: Uint8Array | Blob): number {
  return body instanceof Blob ? body.size : body.byteLength;
}
