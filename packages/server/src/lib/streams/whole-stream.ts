/**
 * Detects whether the body of an HTTP/2 request or answer is complete. Node emits `end` also for a stream that the far end cancelled, and for
 * streams of a destroyed session. So a truncated body of unknown length would look complete.
 */
import http2, { type Http2Session, type Http2Stream } from 'node:http2';
import { pipeline, Transform, type Readable } from 'node:stream';

/**
 * Watches a stream. Call this before the stream ends, and call the returned function after the stream's `end` event.
 */
export function watchEnd(stream: Http2Stream): () => boolean {
  // A destroyed stream no longer has its session.
  const { session } = stream;
  return () => (stream.rstCode ?? 0) === http2.constants.NGHTTP2_NO_ERROR && session?.destroyed !== true;
}

/** Returns whether the far end is ending a session, or has lost it. Ask the session that a stream had at first. */
export function isEnding(session: Http2Session | undefined): boolean {
  // A server that stops closes the session first, and later ends the streams that are left.
  return session?.destroyed === true || session?.closed === true;
}

/**
 * Reads a stream from now on, as far as a buffer allows: when a connection closes, Node drops what of its streams has not been
 * read, also of those that are complete. The result fails unless exactly `sizeBytes` come, or, if that is null, the far end itself
 * ends the stream.
 */
export function readWhole(stream: Http2Stream, sizeBytes: number | null): Readable {
  const whole = checkWhole(stream, sizeBytes);
  // Its reader, who may come later, sees the error, too.
  whole.on('error', () => undefined);
  pipeline(stream, whole, () => undefined);
  // A pipeline waits for ever for the end of a stream whose end has come, but is dropped with what was before it.
  stream.once('close', () => {
    if (!stream.readableEnded) whole.destroy(new Error('the connection was lost'));
  });
  return whole;
}

function checkWhole(stream: Http2Stream, sizeBytes: number | null): Transform {
  const endsByItself = watchEnd(stream);
  let left = sizeBytes ?? Infinity;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      left -= chunk.length;
      if (left < 0) done(new Error('more bytes than announced'));
      else done(null, chunk);
    },
    flush(done) {
      const isWhole = sizeBytes === null ? endsByItself() : left === 0;
      done(isWhole ? null : new Error('the content was cut off'));
    },
  });
}
