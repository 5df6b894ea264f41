/**
 * Asks another process over a pair of byte streams, with lines of JSON: `{"id",…}` out; `{"id","result"}` or
 * `{"id","error"}` in, in any order. Lines without an id are events.
 */
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import { withDeadline } from '../waiting/deadline.ts';

const Answer = z.union([
  z.strictObject({ id: z.int(), result: z.unknown() }),
  z.strictObject({
    id: z.int(),
    error: z.union([z.string(), z.object({ code: z.string(), message: z.string() })]),
  }),
]);
const Event = z.looseObject({ event: z.string() });
export type LineEvent = z.infer<typeof Event>;

/** The other side answered with an error. */
export class RefusedRequestError extends AppError {
  /** The other side's code for the error; undefined if its errors have none. */
  readonly reason: string | undefined;

  constructor(message: string, reason?: string) {
    super('internal', message);
    this.reason = reason;
  }
}

interface Pending {
  resolve: (result: unknown) => void;
  reject: (error: AppError) => void;
}

export interface JsonLineClientOptions {
  input: Readable;
  output: Writable;
  /** Of an answer, in milliseconds, unless the request has its own. */
  timeoutMs: number;
  onEvent?: (event: LineEvent) => void;
}

export class JsonLineClient {
  readonly #options: JsonLineClientOptions;
  readonly #pending = new Map<number, Pending>();
  readonly #ended = Promise.withResolvers<string>();
  #endReason: string | undefined;
  #lastId = 0;

  constructor(options: JsonLineClientOptions) {
    const { input, output } = options;
    this.#options = options;
    // A write to a process that has ended fails; the end of the input rejects the requests.
    output.on('error', () => undefined);
    input.on('error', (error) => this.end(error.message));
    const lines = createInterface({ input });
    lines.on('line', (line) => this.#read(line));
    lines.once('close', () => this.end('it ended'));
  }

  /** Settles when the other process has ended or broken the protocol, with the reason. */
  get ended(): Promise<string> {
    return this.#ended.promise;
  }

  /**
   * Throws {@link RefusedRequestError} when the other side refuses, `internal` when it ends first, DeadlineError when it does
   * not answer.
   */
  async ask(
    step: string,
    request: Record<string, unknown>,
    { timeoutMs = this.#options.timeoutMs } = {},
  ): Promise<unknown> {
    if (this.#endReason !== undefined) throw new AppError('internal', `${step}: ${this.#endReason}`);
    this.#lastId += 1;
    const id = this.#lastId;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.#pending.set(id, { resolve, reject });
    this.#options.output.write(`${JSON.stringify({ id, ...request })}\n`);
    try {
      return await withDeadline(step, timeoutMs, promise);
    } finally {
      this.#pending.delete(id);
    }
  }

  /** Rejects all requests, those in progress and later ones. */
  end(reason: string): void {
    if (this.#endReason !== undefined) return;
    this.#endReason = reason;
    for (const { reject } of this.#pending.values()) reject(new AppError('internal', reason));
    this.#ended.resolve(reason);
  }

  #read(text: string): void {
    const line = parseJson(text);
    const answer = Answer.safeParse(line);
    if (answer.success) return this.#settle(answer.data);
    const event = Event.safeParse(line);
    if (event.success) this.#options.onEvent?.(event.data);
    else this.end('its answer is malformed');
  }

  #settle(answer: z.infer<typeof Answer>): void {
    const pending = this.#pending.get(answer.id);
    if (!('error' in answer)) return pending?.resolve(answer.result);
    const { error } = answer;
    if (typeof error === 'string') pending?.reject(new RefusedRequestError(error));
    else pending?.reject(new RefusedRequestError(error.message, error.code));
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
