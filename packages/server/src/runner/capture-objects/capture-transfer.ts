/**
 * One run of `blocks store` or `blocks fetch` (blocks/internal/transfer): a process that has the credentials of the object
 * store, and of this machine only the files that it inherits. It ends when its input closes.
 */
import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import type { Readable, Writable } from 'node:stream';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import { BlockServerError, type BlockCommand } from '../workspace/block-server.ts';

const HOUR_MS = 3_600_000;
/** Of files of many GiB over a slow link. */
export const STORE_TIMEOUT_MS = 5 * HOUR_MS;
export const FETCH_TIMEOUT_MS = HOUR_MS;
/** Of captures at a time, and of images. Each has some MiB of memory, and up to 16 requests to the store at a time. */
export const STORES = { maxRunning: 2, maxWaiting: 256 };
export const FETCHES = { maxRunning: 4, maxWaiting: 256 };
const FIRST_FD = 3;
const MAX_MESSAGES_CHARS = 2000;

interface TransferFile {
  name: string;
  descriptor: number;
  /** A local file that may have the content of one that is fetched. */
  seed?: number | undefined;
}

export interface Transfer {
  organization: string;
  captureId: string;
  /** The runner's notes on the capture, which are stored with it; empty for a fetch. */
  about: string;
  files: readonly TransferFile[];
  timeoutMs: number;
  signal: AbortSignal;
}

const Answer = z.union([
  z.object({ result: z.unknown() }),
  z.object({ error: z.object({ code: z.string(), message: z.string() }) }),
]);

/** Throws a {@link BlockServerError}, with the reason `corrupt` for what is damaged or incomplete, and the signal's reason. */
export async function runTransfer<T>(
  { command, args, env }: BlockCommand,
  { organization: org, captureId, about, files, timeoutMs, signal }: Transfer,
  schema: z.ZodType<T>,
): Promise<T> {
  signal.throwIfAborted();
  const descriptors = files.flatMap(({ descriptor, seed }) =>
    seed === undefined ? [descriptor] : [descriptor, seed],
  );
  const child = spawn(command, args, {
    cwd: '/',
    env,
    stdio: ['pipe', 'pipe', 'pipe', ...descriptors],
  }) as ChildProcessByStdio<Writable, Readable, Readable>;
  const kill = (): void => void child.kill('SIGKILL');
  signal.addEventListener('abort', kill, { once: true });
  try {
    const placeOf = (descriptor: number | undefined): number =>
      descriptor === undefined ? 0 : FIRST_FD + descriptors.indexOf(descriptor);
    const listed = files.map(({ name, descriptor, seed }) => ({
      name,
      fd: placeOf(descriptor),
      seed_fd: placeOf(seed),
    }));
    const request = { org, capture: captureId, about, files: listed, timeout_ms: timeoutMs };
    const said = await converse(child, `${JSON.stringify(request)}\n`);
    return schema.parse(readAnswer(said));
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    signal.removeEventListener('abort', kill);
    kill();
  }
}

/** Sends the request, and returns the answer of a program that ended well. */
async function converse(
  child: ChildProcessByStdio<Writable, Readable, Readable>,
  request: string,
): Promise<string> {
  let messages = '';
  child.stderr.on('data', (chunk: Buffer) => {
    messages = (messages + chunk.toString('utf8')).slice(-MAX_MESSAGES_CHARS);
  });
  // A program that ended early says so by its exit code.
  child.stdin.on('error', () => undefined);
  // Rejects if the program cannot be started.
  const ended = once(child, 'close') as Promise<[code: number | null, signal: string | null]>;
  child.stdin.write(request);
  const [answer, [code, killedBy]] = await Promise.all([text(child.stdout), ended]);
  if (code === 0) return answer;
  const how = `${killedBy ?? code}: ${messages.trim()}`;
  throw new AppError('unavailable', `a transfer with the object store ended with ${how}`);
}

function readAnswer(said: string): unknown {
  const answer = Answer.parse(JSON.parse(said));
  if ('result' in answer) return answer.result;
  const { code, message } = answer.error;
  throw new BlockServerError(code, message);
}
