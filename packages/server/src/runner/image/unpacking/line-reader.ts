/** Reads lines of a process that may be hostile: their length and number are limited, and each is checked. */
import type { Socket } from 'node:net';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import { MAX_LINE_BYTES, MAX_LINES, MAX_REASON, type UnpackLine } from './unpack-messages.ts';

const LINE_FEED = 0x0a;

const Reason = z.string().max(MAX_REASON);
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

export class LineReader {
  readonly #onLine: (line: UnpackLine) => void;
  readonly #ended = Promise.withResolvers<AppError | undefined>();
  #rest: Buffer = Buffer.alloc(0);
  #lines = 0;

  /** Destroys the socket after a line that breaks the protocol. */
  constructor(socket: Socket, onLine: (line: UnpackLine) => void) {
    this.#onLine = onLine;
    socket.on('error', () => undefined);
    socket.once('close', () => this.#ended.resolve(undefined));
    socket.once('end', () => this.#ended.resolve(undefined));
    socket.on('data', (chunk: Buffer) => {
      try {
        this.#read(chunk);
      } catch (error) {
        this.#ended.resolve(
          new AppError('internal', 'the unpacking process broke its protocol', { cause: error }),
        );
        socket.destroy();
      }
    });
  }

  /** Settles after the last line, with an error when the protocol was broken. */
  get ended(): Promise<AppError | undefined> {
    return this.#ended.promise;
  }

  #read(chunk: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    for (let end = this.#rest.indexOf(LINE_FEED); end >= 0; end = this.#rest.indexOf(LINE_FEED)) {
      const line = this.#rest.toString('utf8', 0, end);
      this.#rest = this.#rest.subarray(end + 1);
      this.#lines += 1;
      if (this.#lines > MAX_LINES || end > MAX_LINE_BYTES) throw new RangeError('too many or too long lines');
      this.#onLine(Line.parse(JSON.parse(line)));
    }
    if (this.#rest.length > MAX_LINE_BYTES) throw new RangeError('a line is too long');
  }
}
