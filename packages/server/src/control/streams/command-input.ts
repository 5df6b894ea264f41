/** What a client sends to a command over a WebSocket: first what to run, then standard input and signals, in order. */
import { AppError, ExecInput, ExecRequest, invalidRequest } from '@coppice/contract';
import type { z } from 'zod';
import type { RunningCommand } from './running-command.ts';

const FIRST_MESSAGE_DEADLINE_MS = 30_000;

export class CommandInput {
  readonly #request = Promise.withResolvers<ExecRequest>();
  readonly #command = Promise.withResolvers<RunningCommand>();
  #running: RunningCommand | undefined;
  #isRequested = false;
  #error: unknown;

  constructor() {
    this.#request.promise.catch(() => undefined);
    this.#command.promise.catch(() => undefined);
  }

  /** What made the input unusable, if anything has. */
  get error(): unknown {
    return this.#error;
  }

  /** Stands for the first message. */
  begin(request: ExecRequest): void {
    this.#isRequested = true;
    this.#request.resolve(request);
  }

  /** The first message; `invalid_request` when it does not come in time. */
  async readRequest(): Promise<ExecRequest> {
    const timer = setTimeout(() => {
      const seconds = FIRST_MESSAGE_DEADLINE_MS / 1000;
      this.fail(
        new AppError('invalid_request', `no message says what to run within ${seconds} s of the connection`),
      );
    }, FIRST_MESSAGE_DEADLINE_MS);
    try {
      return await this.#request.promise;
    } finally {
      clearTimeout(timer);
    }
  }

  /** From here on, input has somewhere to go. */
  attach(command: RunningCommand): void {
    this.#running = command;
    this.#command.resolve(command);
    if (this.#error !== undefined) command.kill();
  }

  /** Ends the command, and keeps the first reason. */
  fail(error: unknown): void {
    this.#error ??= error;
    this.#request.reject(error);
    this.#running?.kill();
  }

  async take({ data, isBinary }: { data: Buffer; isBinary: boolean }): Promise<void> {
    if (isBinary) throw new AppError('invalid_request', 'message: must be text that is JSON, not binary');
    const value = parseJson(data);
    if (!this.#isRequested) {
      this.begin(parse(ExecRequest, value));
      return;
    }
    const input = parse(ExecInput, value);
    const command = await this.#command.promise;
    if (input.type === 'stdin') await command.writeStdin(Buffer.from(input.data));
    else if (input.type === 'stdin_eof') await command.endStdin();
    else await command.signal(input.signal.replace(/^SIG/u, ''));
  }
}

function parseJson(data: Buffer): unknown {
  try {
    return JSON.parse(data.toString('utf8'));
  } catch {
    throw new AppError('invalid_request', 'message: is not JSON');
  }
}

function parse<T extends z.ZodType>(schema: T, input: unknown): z.infer<T> {
  const result = schema.safeParse(input);
  if (result.success) return result.data;
  throw invalidRequest(result.error, { where: 'message', input });
}
