/** A terminal in a sandbox: bytes in both directions, which control does not interpret. */
import type { TerminalQuery, TerminalResize } from '@coppice/contract';
import { encodeFrame, FRAME } from '../../lib/protocol/frames.ts';
import { AuditedProcess, terminalNotes, type AuditedProcessParts } from '../audit/audited-process.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import { GuestStream, parsePayload } from './guest-stream.ts';
import { Exit } from './running-command.ts';

export interface OpenTerminal extends AuditedProcessParts {
  runner: RunnerClient;
  options: TerminalQuery & { env?: Readonly<Record<string, string>> | undefined };
}

export type TerminalOutput = { type: 'output'; data: Buffer } | { type: 'exit'; code: number };

export class TerminalSession implements AsyncIterable<TerminalOutput> {
  readonly #stream: GuestStream;
  readonly #process: AuditedProcess;

  private constructor(stream: GuestStream, process: AuditedProcess) {
    this.#stream = stream;
    this.#process = process;
  }

  static async open({ runner, options, ...parts }: OpenTerminal): Promise<TerminalSession> {
    const { cols, rows, ...process } = options;
    const head = { ...process, cols: Number(cols), rows: Number(rows) };
    const audited = AuditedProcess.begin(parts, terminalNotes(options.command));
    const stream = await audited.opened(() =>
      GuestStream.open({
        request: (body) => runner.openProcess(parts.id, 'terminal', body),
        first: [encodeFrame(FRAME.head, Buffer.from(JSON.stringify(head)))],
      }),
    );
    return new TerminalSession(stream, audited);
  }

  /** Sends input, and resolves when there is room for more. */
  async type(data: Buffer): Promise<void> {
    await this.#stream.sendBytes(FRAME.stdin, data);
  }

  async resize({ cols, rows }: Pick<TerminalResize, 'cols' | 'rows'>): Promise<void> {
    await this.#stream.send(FRAME.resize, Buffer.from(JSON.stringify({ cols, rows })));
  }

  /** Hangs up. */
  kill(): void {
    this.#stream.kill();
  }

  /** Ends with the exit. Read it only once. Leaving the loop hangs up. */
  async *[Symbol.asyncIterator](): AsyncGenerator<TerminalOutput> {
    try {
      for await (const { type, payload } of this.#stream.frames((frame) => frame.type === FRAME.exit)) {
        if (type === FRAME.stdout) yield { type: 'output', data: payload };
        else if (type === FRAME.exit) yield await this.#finish(payload);
      }
    } finally {
      await this.#process.abandon();
    }
  }

  async #finish(payload: Buffer): Promise<TerminalOutput> {
    const code = parsePayload(Exit, payload).exit_code;
    await this.#process.close(code);
    return { type: 'exit', code };
  }
}
