/** Content of a guest, piped to a client: what both sides must not do with it, and whether all of it has come. */
import http2 from 'node:http2';
import { posix } from 'node:path';
import { Transform } from 'node:stream';
import { watchEnd } from '../../../lib/streams/whole-stream.ts';
import type { RunnerAnswer } from '../../placement/runner-connection.ts';

/**
 * Returns the headers of a file or directory at a path. The content is the guest's: a browser must not render it as a page
 * of this origin, nor run scripts in it. `ending` is added to the name that a browser stores it under.
 */
export function buildSafeHeaders(path: string, ending = '') {
  return {
    'content-type': 'application/octet-stream',
    'content-disposition': buildDisposition(posix.basename(path), ending),
    'content-security-policy': "default-src 'none'; sandbox",
    'x-content-type-options': 'nosniff',
  };
}

/** The name is encoded as RFC 8187 has it, so no name of a file can add a header or a parameter. */
function buildDisposition(base: string, ending: string): string {
  if (base === '' || base === '.' || base === '..') return 'attachment';
  const encoded = encodeURIComponent((base + ending).toWellFormed());
  const escape = (char: string) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`;
  return `attachment; filename*=UTF-8''${encoded.replace(/['()*]/g, escape)}`;
}

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
