import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { createInterface } from 'node:readline';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import { invariant } from '../../lib/invariant.ts';

/** The program exits immediately when its input ends. */
const END_TIMEOUT_MS = 5000;
const KILL_TIMEOUT_MS = 10_000;
const MAX_STDERR_CHARS = 4096;

/** One run of the program `capture`: it answers each line of JSON with a line of JSON. */
export class CaptureProcess {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #closed: Promise<void>;
  #answer: PromiseWithResolvers<unknown> | undefined;
  #failure: Error | undefined;
  #stderr = '';

  constructor(program: string, args: readonly string[]) {
    // Its own process group: Ctrl-C in the service's terminal reaches only the service, which then ends this program.
    this.#child = spawn(program, args, {
      cwd: '/',
      env: {},
      detached: true,
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    const closed = Promise.withResolvers<void>();
    this.#closed = closed.promise;
    this.#child.once('error', (error) => {
      this.#fail(error);
      if (this.#child.pid === undefined) closed.resolve();
    });
    this.#child.once('close', (code, signal) => {
      this.#fail(new Error(`${program} ended with ${code ?? signal}: ${this.#stderr.trim()}`));
      closed.resolve();
    });
    // This error only says that the program has ended, and `close` says so too.
    this.#child.stdin.on('error', () => undefined);
    this.#child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-MAX_STDERR_CHARS);
    });
    createInterface({ input: this.#child.stdout }).on('line', (line) => this.#accept(line));
  }

  /**
   * Sends a request and returns the next line, parsed. After `timeoutMs` kills the program and throws DeadlineError.
   */
  async ask(step: string, request: object, timeoutMs: number): Promise<unknown> {
    if (this.#failure !== undefined) throw this.#failure;
    invariant(this.#answer === undefined, 'capture is still busy with another step');
    const answer = Promise.withResolvers<unknown>();
    this.#answer = answer;
    this.#child.stdin.write(`${JSON.stringify(request)}\n`);
    const name = `saving the memory of a VM, step ${step},`;
    return withDeadline(name, timeoutMs, answer.promise, () => this.#child.kill('SIGKILL'));
  }

  /** Closes the program's input and resolves when it has ended. Kills it if it does not end within 5 s. */
  async end(): Promise<void> {
    this.#child.stdin.end();
    const kill = () => this.#child.kill('SIGKILL');
    await withDeadline('the end of capture', END_TIMEOUT_MS, this.#closed, kill).catch(() =>
      withDeadline('the end of capture', KILL_TIMEOUT_MS, this.#closed),
    );
  }

  #accept(line: string): void {
    const answer = this.#answer;
    this.#answer = undefined;
    try {
      answer?.resolve(JSON.parse(line));
    } catch (error) {
      answer?.reject(
        new Error(`capture answered with something that is not JSON: ${line.slice(0, 200)}`, {
          cause: error,
        }),
      );
    }
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    this.#answer?.reject(this.#failure);
    this.#answer = undefined;
  }
}
