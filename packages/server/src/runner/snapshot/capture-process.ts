import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { createInterface } from 'node:readline';
import { withDeadline } from '../../lib/waiting/deadline.ts';

/** The program ends at once when its input does. */
const END_TIMEOUT_MS = 5000;
const KILL_TIMEOUT_MS = 10_000;
const MAX_STDERR_CHARS = 4096;

/** One run of the program `capture`: a line of JSON is asked, a line is answered. */
export class CaptureProcess {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #closed: Promise<void>;
  #answer: PromiseWithResolvers<unknown> | undefined;
  #failure: Error | undefined;
  #stderr = '';

  constructor(program: string, args: readonly string[]) {
    // A group of its own: Ctrl-C in the terminal of the service is for the service, which ends this when it ends.
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
    // Says only that the program has ended, which `close` says too.
    this.#child.stdin.on('error', () => undefined);
    this.#child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-MAX_STDERR_CHARS);
    });
    createInterface({ input: this.#child.stdout }).on('line', (line) => this.#accept(line));
  }

  /** Sends a request and resolves with the parsed line that comes next. After the deadline the program is killed. */
  async ask(step: string, request: object, timeoutMs: number): Promise<unknown> {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#answer !== undefined) throw new Error('capture is still busy with another step');
    const answer = Promise.withResolvers<unknown>();
    this.#answer = answer;
    this.#child.stdin.write(`${JSON.stringify(request)}\n`);
    const name = `saving the memory of a VM, step ${step},`;
    return withDeadline(name, timeoutMs, answer.promise, () => this.#child.kill('SIGKILL'));
  }

  /** Closes the program's input and resolves when it has ended, killed if it must be. */
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
        new Error(`capture said something that is not JSON: ${line.slice(0, 200)}`, { cause: error }),
      );
    }
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    this.#answer?.reject(this.#failure);
    this.#answer = undefined;
  }
}
