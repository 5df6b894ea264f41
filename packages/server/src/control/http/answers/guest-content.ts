/** Content of a guest, piped to a client: what both sides must not do with it, and whether all of it has come. */
import http2 from 'node:http2';
import { Transform } from 'node:stream';
import { watchEnd } from '../../../lib/streams/whole-stream.ts';
import type { RunnerAnswer } from '../../placement/runner-connection.ts';

/** The content is the guest's: a browser must not render it as a page of this origin, nor run scripts in it. */
export const SAFE_HEADERS = {
  'content-type': 'application/octet-stream',
  'content-disposition': 'attachment',
  'content-security-policy': "default-src 'none'; sandbox",
  'x-content-type-options': 'nosniff',
};

/** Cancels the download when its audit entry cannot be appended: nothing is read without an entry. */
export async function logContent({ stream }: RunnerAnswer, append: () => Promise<unknown>): Promise<void> {
  try {
    await append();
  } catch (error) {
    stream.close(http2.constants.NGHTTP2_CANCEL);
    throw error;
  }
}

/** Fails unless exactly the announced bytes pass, or, without an announced size, the agent itself ended the stream. */
export function whole({ stream }: RunnerAnswer, sizeBytes: number | null): Transform {
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
      done(isWhole ? null : new Error('the file was cut off'));
    },
  });
}
