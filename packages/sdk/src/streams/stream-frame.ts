import { CoppiceError, toCodes } from '../transport/errors.ts';
import { readObject, readString, type WireObject } from '../transport/wire.ts';

/** Content of a message of a stream: an item to read, or the result that ends the stream. */
export type StreamFrame<Item, Final> = { item: Item } | { final: Final };

/** Origin of a frame, for the message of an error. */
export interface FrameSource {
  /** Method and path. */
  label: string;
  /** HTTP status with which the stream began. */
  status: number;
}

/**
 * Parses a frame. Throws {@link CoppiceError} for an error frame, and `SyntaxError` or `TypeError` for another text.
 */
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
  return new CoppiceError(`HTTP ${status} from ${label}, which failed later: ${detail}`, {
    status,
    ...toCodes(readString(error, 'code')),
    requestId: typeof requestId === 'string' ? requestId : undefined,
    detail,
  });
}
