import { CoppiceError } from '../transport/errors.ts';
import { readObject, readString, type WireObject } from '../transport/wire.ts';

/** What a message of a stream brings: something to read, or the result with which the stream ends. */
export type StreamFrame<Item, Final> = { item: Item } | { final: Final };

/** Where a frame came from, for the text of an error. */
export interface FrameSource {
  /** Method and path. */
  label: string;
  /** HTTP status with which the stream began. */
  status: number;
}

/** Throws the service's error if the frame is one. */
export function parseFrame(text: string, source: FrameSource): { type: string; frame: WireObject } {
  const frame = readObject(JSON.parse(text), 'a frame');
  const type = readString(frame, 'type');
  if (type === 'error') throw buildFrameError(frame, source);
  return { type, frame };
}

function buildFrameError(frame: WireObject, { label, status }: FrameSource): CoppiceError {
  const error = readObject(frame['error'], 'error');
  const detail = readString(error, 'message');
  const requestId = error['request_id'];
  return new CoppiceError(`HTTP ${status} from ${label}, which failed under way: ${detail}`, {
    status,
    code: readString(error, 'code'),
    requestId: typeof requestId === 'string' ? requestId : undefined,
    detail,
  });
}
