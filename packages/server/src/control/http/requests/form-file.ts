/**
 * The file of a `multipart/form-data` body, as browsers and `curl -F` upload it: one part, named `file`. Its content is
 * passed on as it comes. It ends only when the whole form was well formed: a form that is cut off, or has more than one
 * part, breaks the content, so that nothing of it is stored.
 *
 *     request ─► parser ─► part "file" ─► content ─► guest        each waits for the next one
 */
import type { IncomingMessage } from 'node:http';
import { PassThrough, type Readable } from 'node:stream';
import { Busboy, type BusboyInstance } from '@fastify/busboy';
import { AppError } from '@coppice/contract';
import { stretched } from '../../../lib/waiting/deadline.ts';

/** The file must begin within this many bytes: before it come the boundary and the part's headers. */
const MAX_HEAD_BYTES = 64 << 10;
/** The file must begin within this time, so that a form that comes byte by byte holds no request. */
const HEAD_DEADLINE_MS = 60_000;
const MAX_PART_HEADERS_BYTES = 16 << 10;
/** Longest text of a caller that an error shows, in characters. */
const MAX_SHOWN = 60;
/** Other encodings would store the encoded text. RFC 7578 has deprecated them. */
const PLAIN_ENCODINGS: ReadonlySet<string> = new Set(['7bit', '8bit', 'binary']);

export function isForm(contentType: string | undefined): boolean {
  return /^multipart\/form-data\s*(;|$)/i.test(contentType ?? '');
}

export class FormFile implements Disposable {
  readonly content: Readable;
  readonly #content = new PassThrough();
  readonly #request: IncomingMessage;
  readonly #parser: BusboyInstance;
  readonly #begun = Promise.withResolvers<void>();
  readonly #signal: AbortSignal;
  #headBytes = 0;
  #hasFile = false;

  /** Resolves when the file begins. Throws `invalid_request` when the form has none. The caller disposes of it. */
  static async open(request: IncomingMessage, signal: AbortSignal): Promise<FormFile> {
    const form = new FormFile(request, signal);
    const headMs = stretched(HEAD_DEADLINE_MS);
    const late = () => form.#refuse(`has no part named "file" within ${headMs / 1000} s`);
    const timer = setTimeout(late, headMs);
    try {
      await form.#begun.promise;
      return form;
    } catch (error) {
      form[Symbol.dispose]();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  private constructor(request: IncomingMessage, signal: AbortSignal) {
    this.content = this.#content;
    this.#request = request;
    this.#signal = signal;
    this.#parser = createParser(request);
    this.#content.on('error', (error) => this.#begun.reject(error));
    this.#listen();
    signal.addEventListener('abort', this.#abort);
    request.once('close', this.#noteClose);
    request.pipe(this.#parser);
    request.on('data', this.#countHead);
  }

  #listen(): void {
    const parser = this.#parser;
    parser.on('file', (name, part, _filename, encoding) => this.#take(name, part, encoding));
    parser.on('partsLimit', () => this.#refuse('has more than one part; send only the part "file"'));
    parser.on('error', () => this.#refuse('is not multipart/form-data up to its closing boundary'));
    parser.on('finish', () => this.#finish());
  }

  /** Stops reading. Discards what the client still sends, so that the client can read its answer. */
  [Symbol.dispose](): void {
    this.#signal.removeEventListener('abort', this.#abort);
    this.#request.off('close', this.#noteClose).off('data', this.#countHead);
    this.#request.unpipe(this.#parser);
    this.#request.resume();
    this.#content.destroy();
  }

  #take(name: string | undefined, part: Readable, encoding: string): void {
    part.on('error', () => this.#refuse('breaks off within the part "file"'));
    this.#request.off('data', this.#countHead);
    this.#hasFile = true;
    if (name !== 'file') return this.#refuse(describeStranger(name));
    if (!PLAIN_ENCODINGS.has(encoding))
      return this.#refuse(
        `the part "file" has Content-Transfer-Encoding ${show(encoding)}; send plain bytes`,
      );
    part.pipe(this.#content, { end: false });
    this.#begun.resolve();
  }

  #finish(): void {
    if (this.#hasFile) this.#content.end();
    else this.#refuse('has no part named "file"');
  }

  #refuse(reason: string): void {
    this.#content.destroy(new AppError('invalid_request', `body: ${reason}`));
  }

  readonly #abort = (): void => {
    const reason: unknown = this.#signal.reason;
    this.#content.destroy(reason instanceof Error ? reason : new Error('the upload was aborted'));
  };

  readonly #noteClose = (): void => {
    if (!this.#request.readableEnded) this.#refuse('breaks off before its end');
  };

  readonly #countHead = (chunk: Buffer): void => {
    this.#headBytes += chunk.length;
    if (this.#headBytes > MAX_HEAD_BYTES)
      this.#refuse(`has no part named "file" in its first ${MAX_HEAD_BYTES >> 10} KiB`);
  };
}

function createParser({ headers }: IncomingMessage): BusboyInstance {
  try {
    return new Busboy({
      headers: { 'content-type': headers['content-type'] ?? '' },
      limits: { parts: 1, headerSize: MAX_PART_HEADERS_BYTES },
      // A part without a file name is also a file: its content is streamed, not buffered.
      isPartAFile: () => true,
    });
  } catch (error) {
    throw new AppError(
      'invalid_request',
      'Content-Type: multipart/form-data needs a boundary; most clients set it themselves',
      { cause: error },
    );
  }
}

function describeStranger(name: string | undefined): string {
  if (name === undefined) return 'has a part without a name; name it "file"';
  return `has the unknown part ${show(name)}; send only the part "file", and path, user and mode in the query`;
}

function show(text: string): string {
  return JSON.stringify(text.slice(0, MAX_SHOWN));
}
