import { spawn, type ChildProcess } from 'node:child_process';
import type { Writable } from 'node:stream';
import { stretched } from '../../lib/waiting/deadline.ts';

/** System directories only: the PATH of a caller must not decide which programs run as root. */
const SYSTEM_PATH = '/usr/sbin:/usr/bin:/sbin:/bin';
const MAX_STDERR_BYTES = 16 * 1024;

export interface ProcessOptions {
  command: string;
  args: readonly string[];
  /** The whole environment apart from PATH and locale. */
  env?: Readonly<Record<string, string>>;
  timeoutMs: number;
  signal?: AbortSignal;
  /** More bytes than this on standard output are an error; default 0. */
  maxStdoutBytes?: number;
  /** Feeds standard input; it is closed when the promise settles. */
  feed?: (stdin: Writable) => Promise<void>;
}

/** A child process that did not end with exit code 0. */
export class ProcessError extends Error {
  /** The first 16 KiB of standard error. */
  readonly stderr: string;
  readonly isTimeout: boolean;

  constructor(message: string, options: { stderr: string; isTimeout?: boolean; cause?: unknown }) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'ProcessError';
    this.stderr = options.stderr;
    this.isTimeout = options.isTimeout ?? false;
  }
}

/**
 * Runs a program to its end and returns its standard output. The program is killed at the deadline, on abort, on too
 * much output and when this process dies. Rejects with {@link ProcessError}, the abort's reason or the error of `feed`.
 */
export async function runProcess(options: ProcessOptions): Promise<Buffer> {
  options.signal?.throwIfAborted();
  const timeoutMs = stretched(options.timeoutMs);
  const deadline = AbortSignal.timeout(timeoutMs);
  const stop = options.signal === undefined ? deadline : AbortSignal.any([deadline, options.signal]);
  const child = spawn('setpriv', ['--pdeathsig', 'KILL', '--', options.command, ...options.args], {
    env: { PATH: SYSTEM_PATH, LC_ALL: 'C.UTF-8', ...options.env },
    stdio: ['pipe', 'pipe', 'pipe'],
    // A process group of its own, so that its children are killed with it.
    detached: true,
  });
  // Without free descriptors there are no pipes, and the error comes later as an event.
  if ((child.stdin as Writable | undefined) === undefined) {
    child.on('error', () => undefined);
    throw new ProcessError(`${options.command}: there are no file descriptors left`, { stderr: '' });
  }
  const kill = () => killGroup(child);
  stop.addEventListener('abort', kill, { once: true });
  const stdout = new BoundedOutput(options.maxStdoutBytes ?? 0, kill);
  const stderr = new BoundedOutput(MAX_STDERR_BYTES);
  child.stdout.on('data', (chunk: Buffer) => stdout.push(chunk));
  child.stderr.on('data', (chunk: Buffer) => stderr.push(chunk));
  const ended = new Promise<string | undefined>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signalName) => {
      if (code === 0) resolve(undefined);
      else resolve(code === null ? `killed by ${signalName}` : `exit code ${code}`);
    });
  });
  const fed = feedInput(child.stdin, options.feed, kill);
  try {
    const [failure, feedError] = await Promise.all([ended, fed]);
    options.signal?.throwIfAborted();
    const text = stderr.text();
    if (deadline.aborted) {
      throw new ProcessError(`${options.command}: not done after ${timeoutMs} ms`, {
        stderr: text,
        isTimeout: true,
      });
    }
    if (stdout.isOver) throw new ProcessError(`${options.command}: too much output`, { stderr: text });
    // The feed's own error comes first: the program was killed because of it. EPIPE only says that the program had
    // ended.
    if (feedError !== undefined && !isBrokenPipe(feedError)) throw feedError;
    if (failure !== undefined)
      throw new ProcessError(`${options.command}: ${failure}: ${text.trim()}`, { stderr: text });
    if (feedError !== undefined) throw feedError;
    return stdout.bytes();
  } finally {
    stop.removeEventListener('abort', kill);
  }
}

function killGroup(child: ChildProcess): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Settles when all input is written. Returns its error as a value, so that the caller can first await the program. */
async function feedInput(
  stdin: Writable,
  feed: ProcessOptions['feed'],
  kill: () => void,
): Promise<Error | undefined> {
  let streamError: Error | undefined;
  stdin.on('error', (error) => {
    streamError ??= error;
  });
  try {
    await feed?.(stdin);
    stdin.end();
    return streamError;
  } catch (error) {
    const cause = error instanceof Error ? error : new Error(String(error));
    if (!isBrokenPipe(cause)) kill();
    stdin.destroy();
    return cause;
  }
}

function isBrokenPipe(error: Error): boolean {
  const code = (error as NodeJS.ErrnoException).code;
  return code === 'EPIPE' || code === 'ECONNRESET' || code === 'ERR_STREAM_DESTROYED';
}

class BoundedOutput {
  readonly #maxBytes: number;
  readonly #onOver: (() => void) | undefined;
  readonly #chunks: Buffer[] = [];
  #bytes = 0;
  isOver = false;

  constructor(maxBytes: number, onOver?: () => void) {
    this.#maxBytes = maxBytes;
    this.#onOver = onOver;
  }

  push(chunk: Buffer): void {
    const room = this.#maxBytes - this.#bytes;
    if (chunk.length > room && !this.isOver) {
      this.isOver = true;
      this.#onOver?.();
    }
    if (room === 0) return;
    const kept = chunk.subarray(0, room);
    this.#chunks.push(kept);
    this.#bytes += kept.length;
  }

  bytes(): Buffer {
    return Buffer.concat(this.#chunks);
  }

  text(): string {
    return this.bytes().toString('utf8');
  }
}
