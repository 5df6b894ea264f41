/**
 * Detects whether the body of an HTTP/2 request or answer is complete. Node emits `end` also for a stream that the far end cancelled, and for
 * streams of a destroyed session. So a truncated body of unknown length would look complete.
 */
import http2, { type Http2Stream } from 'node:http2';

/**
 * Watches a stream. Call this before the stream ends, and call the returned function after the stream's `end` event.
 */
export function watchEnd(stream: Http2Stream): () => boolean {
  // A destroyed stream no longer has its session.
  const { session } = stream;
  return () => (stream.rstCode ?? 0) === http2.constants.NGHTTP2_NO_ERROR && session?.destroyed !== true;
}
