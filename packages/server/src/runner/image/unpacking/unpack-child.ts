import type { ChildProcess } from 'node:child_process';
import type { Socket } from 'node:net';
import { invariant } from '../../../lib/invariant.ts';
import { withDeadline } from '../../../lib/waiting/deadline.ts';
import { ProcessError } from '../../host/run-process.ts';

const END_TIMEOUT_MS = 10_000;
/** Bytes of its messages that are kept, of those that may become part of an error. */
const MAX_SAID = 1000;
/** A process that writes more than this to its standard error finds it closed. */
const MAX_STDERR_BYTES = 64 * 1024;

/** A process of a preparation. It cannot start others: the launcher's filter of system calls refuses that. */
export class UnpackChild {
  readonly name: string;
  /** Settles with how it ended. */
  readonly ended: Promise<string>;
  readonly #process: ChildProcess;
  #said = '';
  #stderrBytes = 0;

  constructor(name: string, process: ChildProcess) {
    this.name = name;
    this.#process = process;
    // Each use of a stream sees its own error; a stream that is not in use must not end the runner.
    for (const stream of process.stdio) stream?.on('error', () => undefined);
    process.stderr?.on('data', (chunk: Buffer) => this.#hear(chunk));
    const ended = Promise.withResolvers<string>();
    process.once('close', (code, signal) => ended.resolve(signal ?? `code ${code ?? 1}`));
    process.once('error', (error) => ended.resolve(error.message));
    this.ended = ended.promise;
  }

  /** Returns the beginning of its messages. */
  get said(): string {
    return this.#said.trim();
  }

  /** Returns its pipe number `index`, counted from the first descriptor that is not a standard stream. */
  socket(index: number): Socket {
    const socket = this.#process.stdio[3 + index];
    invariant(socket, 'it has a pipe there');
    return socket as Socket;
  }

  /** Throws {@link ProcessError} unless it ends well. */
  async succeeded(): Promise<void> {
    const how = await this.ended;
    if (how !== 'code 0') throw new ProcessError(`${this.name}: ${how}: ${this.said}`, { stderr: this.said });
  }

  kill(): void {
    this.#process.kill('SIGKILL');
  }

  /** Ends the process and waits for that. */
  async end(): Promise<void> {
    this.kill();
    for (const stream of this.#process.stdio) stream?.destroy();
    await withDeadline(`the end of ${this.name}`, END_TIMEOUT_MS, this.ended);
  }

  #hear(chunk: Buffer): void {
    this.#said = (this.#said + chunk.toString('utf8', 0, MAX_SAID)).slice(0, MAX_SAID).toWellFormed();
    this.#stderrBytes += chunk.length;
    if (this.#stderrBytes > MAX_STDERR_BYTES) this.#process.stderr?.destroy();
  }
}
