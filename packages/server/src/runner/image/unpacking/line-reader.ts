/** Reads lines of a process that may be hostile: their length and rate are limited, and each is checked. */
import type { Socket } from 'node:net';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import { MAX_LINE_BYTES, MAX_REASON, PROGRESS_INTERVAL_MS, type UnpackLine } from './unpack-messages.ts';

const LINE_FEED = 0x0a;
/** Lines that may come at any time: one for each layer, and some. */
const BURST = 1000;
/** Twice the rate of the reports of progress. */
const LINES_PER_MS = 2 / PROGRESS_INTERVAL_MS;

/** A text that a stranger reads: of one line, and valid in every encoding. */
const Reason = z
  .string()
  .max(MAX_REASON)
  .transform((text) => text.toWellFormed().replaceAll(/\p{Cc}/gu, ' '));
const Count = z.int().min(0);
const Line: z.ZodType<UnpackLine> = z.union([
  z.strictObject({ layer: Count, digest: z.string().regex(/^sha256:[0-9a-f]{64}$/u) }),
  z.strictObject({ layer: Count, fault: Reason }),
  z.strictObject({ fault: Reason }),
  z.strictObject({ error: Reason, code: z.string().max(40).optional() }),
  z.strictObject({ content_bytes: Count }),
  z.strictObject({ bytes: Count }),
  z.strictObject({ acls: Count }),
]);

/** Thrown for a line that breaks the protocol. */
export class ProtocolError extends AppError {
  constructor(cause: unknown) {
    super('internal', 'the unpacking process broke its protocol', { cause });
    this.name = 'ProtocolError';
  }
}

export class LineReader {
  readonly #onLine: (line: UnpackLine) => void;
  readonly #ended = Promise.withResolvers<ProtocolError | undefined>();
  readonly #startedAtMs = performance.now();
  #rest: Buffer = Buffer.alloc(0);
  #lines = 0;

  /** Destroys the socket after a line that breaks the protocol, which `onLine` may find too: then it throws. */
  constructor(socket: Socket, onLine: (line: UnpackLine) => void) {
    this.#onLine = onLine;
    socket.once('close', () => this.#ended.resolve(undefined));
    socket.once('end', () => this.#ended.resolve(undefined));
    socket.on('data', (chunk: Buffer) => {
      if (socket.destroyed) return;
      try {
        this.#read(chunk, socket);
      } catch (error) {
        this.#ended.resolve(new ProtocolError(error));
        socket.destroy();
      }
    });
  }

  /** Settles after the last line, with an error when the protocol was broken. */
  get ended(): Promise<ProtocolError | undefined> {
    return this.#ended.promise;
  }

  #read(chunk: Buffer, socket: Socket): void {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    for (let end = this.#rest.indexOf(LINE_FEED); end >= 0; end = this.#rest.indexOf(LINE_FEED)) {
      const line = this.#rest.toString('utf8', 0, end);
      this.#rest = this.#rest.subarray(end + 1);
      this.#lines += 1;
      if (
        this.#lines > BURST + (performance.now() - this.#startedAtMs) * LINES_PER_MS ||
        end > MAX_LINE_BYTES
      )
        throw new RangeError('too many or too long lines');
      this.#onLine(Line.parse(JSON.parse(line)));
      if (socket.destroyed) return;
    }
    if (this.#rest.length > MAX_LINE_BYTES) throw new RangeError('a line is too long');
  }
}
