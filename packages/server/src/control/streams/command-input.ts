/** A client's messages to a command over a WebSocket: first the request, then standard input and signals, in order. */
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

  /** Sets the request in place of a first message. */
  begin(request: ExecRequest): void {
    this.#isRequested = true;
    this.#request.resolve(request);
  }

  /** Resolves with the first message. Rejects with `invalid_request` if it does not arrive in time. */
  async readRequest(): Promise<ExecRequest> {
    const timer = setTimeout(() => {
      const seconds = FIRST_MESSAGE_DEADLINE_MS / 1000;
      this.fail(
        new AppError(
          'invalid_request',
          `the first message, with the command, did not arrive in ${seconds} s`,
        ),
      );
    }, FIRST_MESSAGE_DEADLINE_MS);
    try {
      return await this.#request.promise;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Sets the command that input is passed to. */
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
