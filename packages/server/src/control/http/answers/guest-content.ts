/** Content of a guest, piped to a client: what both sides must not do with it, and whether all of it has come. */
import http2 from 'node:http2';
import { posix } from 'node:path';
import type { Readable } from 'node:stream';
import { AppError } from '@coppice/contract';
import { isEnding, readWhole } from '../../../lib/streams/whole-stream.ts';
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

/** Content of a guest, on its way to a client. */
export interface GuestContent {
  /** Fails unless exactly the announced bytes came, or, without an announced size, the agent itself ended the stream. */
  body: Readable;
  /**
   * Waits for the audit entry, without which nothing may be read. Throws `guest_unreachable`, or `unavailable` if the runner was
   * lost, if the content has broken off meanwhile: the client can still be answered so.
   */
  logged: (append: () => Promise<unknown>) => Promise<void>;
}

/** Reads an answer from now on: a runner that stops closes its connection when it has sent all. */
export function readContent({ stream }: RunnerAnswer, sizeBytes: number | null): GuestContent {
  // A destroyed stream no longer has it.
  const { session } = stream;
  const body = readWhole(stream, sizeBytes);
  const logged = async (append: () => Promise<unknown>): Promise<void> => {
    try {
      await append();
    } catch (error) {
      stream.close(http2.constants.NGHTTP2_CANCEL);
      throw error;
    }
    if (body.errored !== null) throw brokenOff(isEnding(session), body.errored);
  };
  return { body, logged };
}

function brokenOff(isRunnerLost: boolean, cause: Error): AppError {
  return isRunnerLost
    ? new AppError('unavailable', 'the runner of the sandbox restarts; try again', { cause })
    : new AppError('guest_unreachable', 'the sandbox broke off its answer', { cause });
}
