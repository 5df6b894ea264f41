/** Turns the server-sent events of a build into calls of one callback and one result. */
import { CoppiceError, readErrorFields, toCodes } from '../transport/errors.ts';
import { readEventData } from './event-stream.ts';
import { labelOf, type CallRequest, type Transport } from '../transport/transport.ts';
import {
  readNumber,
  readObject,
  readOptionalNumber,
  readString,
  type WireObject,
} from '../transport/wire.ts';

/** The service sends an event or a comment at least every 15 s. */
const SILENCE_MS = 60_000;
const MAX_EVENT_LENGTH = 1 << 20;

/** Progress of a build. */
export interface BuildProgress {
  /** `resolve`, `pull`, `flatten`, or `template` for each shape. A newer service may have more steps. */
  step: string;
  /** Bytes done in this step. Null when the step has started and nothing is known yet. */
  doneBytes: number | null;
  /** Total bytes of this step. Null if not known. */
  totalBytes: number | null;
  /** Milliseconds since the service started the build. */
  elapsedMs: number;
}

/** Callback and parser of {@link followBuild}. */
export interface FollowOptions<Image> {
  onProgress: (progress: BuildProgress) => void;
  parseImage: (value: unknown) => Image;
}

/**
 * Sends a build request, reports its progress, and resolves with the image of the `done` event. Throws
 * {@link CoppiceError} with the code of the `error` event, or `invalid_response` for an unexpected stream.
 */
export async function followBuild<Image>(
  transport: Transport,
  request: CallRequest,
  { onProgress, parseImage }: FollowOptions<Image>,
): Promise<Image> {
  const stream = await transport.callStream({
    ...request,
    headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
    stallMs: Math.max(transport.timeoutMs, SILENCE_MS),
  });
  for await (const data of readEventData(stream, MAX_EVENT_LENGTH)) {
    const event = parseEvent(request, data);
    const type = event['type'];
    if (type === 'done') return readInto(request, () => parseImage(event['image']));
    if (type === 'error') throw buildEventError(request, event);
    if (type === 'step' || type === 'progress') onProgress(readInto(request, () => parseProgress(event)));
  }
  throw brokenStream(request, 'the stream ended before the image was ready');
}

function parseEvent(request: CallRequest, data: string): WireObject {
  return readInto(request, () => readObject(JSON.parse(data), 'an event'));
}

function parseProgress(event: WireObject): BuildProgress {
  return {
    step: readString(event, 'step'),
    doneBytes: readOptionalNumber(event, 'done_bytes'),
    totalBytes: readOptionalNumber(event, 'total_bytes'),
    elapsedMs: readNumber(event, 'elapsed_ms'),
  };
}

function buildEventError(request: CallRequest, event: WireObject): CoppiceError {
  const { code, message = 'the service gave no reason', requestId } = readErrorFields(event);
  const codes = code === undefined ? { code: 'invalid_response' as const } : toCodes(code);
  return new CoppiceError(`${labelOf(request)} failed during the build: ${code ?? codes.code}: ${message}`, {
    status: 200,
    ...codes,
    detail: message,
    requestId,
  });
}

function readInto<Value>(request: CallRequest, read: () => Value): Value {
  try {
    return read();
  } catch (error) {
    throw brokenStream(request, error instanceof Error ? error.message : String(error), error);
  }
}

function brokenStream(request: CallRequest, why: string, cause?: unknown): CoppiceError {
  return new CoppiceError(`${labelOf(request)}: invalid stream of build events: ${why}`, {
    status: 200,
    code: 'invalid_response',
    cause,
  });
}
