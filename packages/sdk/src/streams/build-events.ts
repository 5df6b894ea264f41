/** The events of a build that is followed, from server-sent events to one callback and one result. */
import { CoppiceError, readErrorFields } from '../transport/errors.ts';
import { readEventData } from './event-stream.ts';
import { labelOf, type CallRequest, type Transport } from '../transport/transport.ts';
import {
  readNumber,
  readObject,
  readOptionalNumber,
  readString,
  type WireObject,
} from '../transport/wire.ts';

/** The service sends something every 15 s. */
const SILENCE_MS = 60_000;
const MAX_EVENT_LENGTH = 1 << 20;

/** How far a build is. */
export interface BuildProgress {
  /** `resolve`, `pull`, `flatten`, or `template` for each shape; a newer service may know more. */
  step: string;
  /** Null when a step has begun and nothing is known yet. */
  doneBytes: number | null;
  totalBytes: number | null;
  /** Since the service began. */
  elapsedMs: number;
}

export interface FollowOptions<Image> {
  onProgress: (progress: BuildProgress) => void;
  parseImage: (value: unknown) => Image;
}

/** Resolves with the image of the `done` event. */
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
  throw brokenStream(request, 'it ended before the image was ready');
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
  const {
    code = 'invalid_response',
    message = 'the service gave no reason',
    requestId,
  } = readErrorFields(event);
  return new CoppiceError(`${labelOf(request)} failed under way: ${code}: ${message}`, {
    status: 200,
    code,
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
  return new CoppiceError(`${labelOf(request)}: the events are not those of the service: ${why}`, {
    status: 200,
    code: 'invalid_response',
    cause,
  });
}
