/** What a client sends to a command over a WebSocket: first what to run, then standard input and signals, in order. */
import { AppError, ExecInput, ExecRequest } from '@coppice/contract';
import { parseMessage, type ClientMessage } from './client-message.ts';
import type { RunningCommand } from './running-command.ts';

const FIRST_MESSAGE_DEADLINE_MS = 30_000;

export class CommandInput {
  readonly #request = Promise.withResolvers<ExecRequest>();
  readonly #command = Promise.withResolvers<RunningCommand>();
  #running: RunningCommand | undefined;
  #isRequested = false;
  #isOver = false;

  constructor() {
    this.#request.promise.catch(() => undefined);
    this.#command.promise.catch(() => undefined);
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
    if (this.#isOver) command.kill();
  }

  /** Ends the command. */
  fail(error: unknown): void {
    this.#isOver = true;
    this.#request.reject(error);
    this.#running?.kill();
  }

  async take(message: ClientMessage): Promise<void> {
    if (!this.#isRequested) {
      this.begin(parseMessage(ExecRequest, message));
      return;
    }
    const input = parseMessage(ExecInput, message);
    const command = await this.#command.promise;
    if (input.type === 'stdin') await command.writeStdin(Buffer.from(input.data));
    else if (input.type === 'stdin_eof') await command.endStdin();
    else await command.signal(input.signal.replace(/^SIG/u, ''));
  }
}
