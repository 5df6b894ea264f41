/** A connection to the SSH server in a sandbox. It is encrypted up to the guest: control passes bytes on. */
import type { SshQuery } from '@coppice/contract';
import { encodeFrame, FRAME } from '../../lib/protocol/frames.ts';
import { AuditedProcess, sshNotes, type AuditedProcessParts } from '../audit/audited-process.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import { GuestStream, parsePayload } from './guest-stream.ts';
import { Exit } from './running-command.ts';

export interface OpenSshConnection extends AuditedProcessParts {
  runner: RunnerClient;
  options: SshQuery & { env?: Readonly<Record<string, string>> | undefined };
}

export class SshConnection implements AsyncIterable<Buffer> {
  readonly #stream: GuestStream;
  readonly #process: AuditedProcess;

  private constructor(stream: GuestStream, process: AuditedProcess) {
    this.#stream = stream;
    this.#process = process;
  }

  static async open({ runner, options, ...parts }: OpenSshConnection): Promise<SshConnection> {
    const audited = AuditedProcess.begin(parts, sshNotes(options.user));
    const stream = await audited.opened(() =>
      GuestStream.open({
        request: (body) => runner.openProcess(parts.id, 'ssh', body),
        first: [encodeFrame(FRAME.head, Buffer.from(JSON.stringify(options)))],
      }),
    );
    return new SshConnection(stream, audited);
  }

  /** Sends bytes to the server, and resolves when there is room for more. */
  async send(data: Buffer): Promise<void> {
    await this.#stream.sendBytes(FRAME.stdin, data);
  }

  /** Ends the server. Programs on a terminal are hung up, others see closed pipes. */
  kill(): void {
    this.#stream.kill();
  }

  /** Yields the bytes of the server until it has ended. Read it only once. Leaving the loop ends the server. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer> {
    try {
      for await (const { type, payload } of this.#stream.frames((frame) => frame.type === FRAME.exit)) {
        if (type === FRAME.stdout) yield payload;
        else if (type === FRAME.exit) await this.#process.close(parsePayload(Exit, payload).exit_code);
      }
    } finally {
      await this.#process.abandon();
    }
  }
}
