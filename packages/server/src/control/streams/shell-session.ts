/**
 * A shell in a sandbox that runs one command after the other. The agent reads the next command when the one before it
 * is done. Waiting commands stay in the stream and, when it is full, block their sender. Control keeps only their ids
 * and their audit entries.
 *
 *   run id, command ─► ids: [running, waiting …] ─► shell_out, shell_err … shell_exit of the first ─► the next
 */
import { StringDecoder } from 'node:string_decoder';
import { AppError, type ShellFrame, type ShellQuery, type ShellRun } from '@coppice/contract';
import { z } from 'zod';
import { encodeFrame, FRAME, type Frame } from '../../lib/protocol/frames.ts';
import { AuditedProcess, commandNotes, type AuditedProcessParts } from '../audit/audited-process.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import { GuestStream, parsePayload } from './guest-stream.ts';

const Done = z.object({ exit_code: z.int().min(0).max(255) });

export interface OpenShell extends AuditedProcessParts {
  runner: RunnerClient;
  options: ShellQuery & { env?: Readonly<Record<string, string>> | undefined };
}

interface ShellCommand {
  /** Id from the client. */
  id: string;
  process: AuditedProcess;
}

export class ShellSession implements AsyncIterable<ShellFrame> {
  readonly #stream: GuestStream;
  readonly #decoders = { shell_out: new StringDecoder('utf8'), shell_err: new StringDecoder('utf8') };
  readonly #parts: AuditedProcessParts;
  readonly #commands: ShellCommand[] = [];
  /** The command that output belongs to while none runs: processes in the background may still write. */
  #lastId = '';

  private constructor(stream: GuestStream, parts: AuditedProcessParts) {
    this.#stream = stream;
    this.#parts = parts;
  }

  static async open({ runner, options, ...parts }: OpenShell): Promise<ShellSession> {
    const stream = await GuestStream.open({
      request: (body) => runner.openProcess(parts.id, 'shell', body),
      first: [encodeFrame(FRAME.head, Buffer.from(JSON.stringify(options)))],
    });
    return new ShellSession(stream, parts);
  }

  /** Sends a command. Resolves when it is audited and there is room for the next. */
  async run({ id, command }: Pick<ShellRun, 'id' | 'command'>): Promise<void> {
    const process = await AuditedProcess.open(this.#parts, commandNotes(command));
    this.#commands.push({ id, process });
    await this.#stream.send(FRAME.run, Buffer.from(command));
  }

  kill(): void {
    this.#stream.kill();
  }

  /** Ends with `shell_closed`. Read it only once. Leaving the loop ends the shell. */
  async *[Symbol.asyncIterator](): AsyncGenerator<ShellFrame> {
    try {
      for await (const frame of this.#stream.frames(({ type }) => type === FRAME.exit))
        yield* await this.#translate(frame);
    } finally {
      await this.#abandonAll();
    }
  }

  async #translate({ type, payload }: Frame): Promise<ShellFrame[]> {
    switch (type) {
      case FRAME.stdout:
        return this.#tell('shell_out', this.#decoders.shell_out.write(payload));
      case FRAME.stderr:
        return this.#tell('shell_err', this.#decoders.shell_err.write(payload));
      case FRAME.done:
        return [...this.#tellRest(), await this.#finish(payload)];
      case FRAME.exit:
        await this.#abandonAll();
        return [...this.#tellRest(), { type: 'shell_closed' }];
      default:
        return [];
    }
  }

  async #finish(payload: Buffer): Promise<ShellFrame> {
    const { exit_code } = parsePayload(Done, payload);
    const finished = this.#commands.shift();
    if (finished === undefined)
      throw new AppError('guest_unreachable', 'the agent reported the end of a command that does not run');
    const { id, process } = finished;
    this.#lastId = id;
    await process.close(exit_code);
    return { type: 'shell_exit', id, code: exit_code };
  }

  /** Abandons all commands: the shell is gone, and with it those that ran and those that waited. */
  async #abandonAll(): Promise<void> {
    await Promise.all(this.#commands.splice(0).map(({ process }) => process.abandon()));
  }

  /** Returns the rests of characters that will not be completed any more. */
  #tellRest(): ShellFrame[] {
    const { shell_out, shell_err } = this.#decoders;
    return [...this.#tell('shell_out', shell_out.end()), ...this.#tell('shell_err', shell_err.end())];
  }

  #tell(type: 'shell_out' | 'shell_err', data: string): ShellFrame[] {
    return data === '' ? [] : [{ type, id: this.#commands[0]?.id ?? this.#lastId, data }];
  }
}
