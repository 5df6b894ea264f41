import { RunningCommand, type CommandOutput, type StartCommand } from './running-command.ts';
import { AuditedProcess, commandNotes, type AuditedProcessParts } from '../audit/audited-process.ts';

export type StartAuditedCommand = StartCommand & AuditedProcessParts;

/** A command whose start and exit are in the audit log before the caller learns of them. */
export class AuditedCommand implements AsyncIterable<CommandOutput> {
  readonly command: RunningCommand;
  readonly #process: AuditedProcess;

  private constructor(command: RunningCommand, process: AuditedProcess) {
    this.command = command;
    this.#process = process;
  }

  /**
   * As {@link RunningCommand.start}. Also kills the command and rejects with `outcome_unknown` if it cannot be audited.
   */
  static async start(options: StartAuditedCommand): Promise<AuditedCommand> {
    const process = AuditedProcess.begin(options, commandNotes(options.request.command));
    return new AuditedCommand(await process.opened(() => RunningCommand.start(options)), process);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<CommandOutput> {
    try {
      for await (const output of this.command) {
        if (output.type === 'exit') await this.#process.close(output.exit_code);
        yield output;
      }
    } finally {
      await this.#process.abandon();
    }
  }

  /** Kills the command. Idempotent; has no effect on a command that has ended. */
  kill(): void {
    this.command.kill();
  }
}
