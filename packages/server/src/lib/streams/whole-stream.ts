/**
 * Whether an HTTP/2 answer ended by itself. Node emits `end` also for a stream that the far end cancelled, and for those of
 * a session that was destroyed: a body of unknown length that was cut off would look whole.
 */
import http2, { type ClientHttp2Stream } from 'node:http2';

/** Call it before the stream ends; ask the returned function when it has emitted `end`. */
export function watchEnd(stream: ClientHttp2Stream): () => boolean {
  // The stream forgets its session when it is destroyed.
  const { session } = stream;
  return () => (stream.rstCode ?? 0) === http2.constants.NGHTTP2_NO_ERROR && session?.destroyed !== true;
}
