/**
 * Writes the RAM of a running VM to a file, using the program `capture` (`capture/internal/save` describes the steps).
 * The runner itself would be too slow, and could serve no requests meanwhile. The caller stops the VM before {@link
 * MemoryWriter.copy} and keeps it stopped until the copy settles.
 */
import { execFile } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { z } from 'zod';
import { AppError } from '@coppice/contract';
import { DeadlineError } from '../../lib/waiting/deadline.ts';
import { CaptureProcess } from './capture-process.ts';

/** The copy of the base takes as long as the disk needs. */
const READY_TIMEOUT_MS = 5 * 60_000;
/** The VM is stopped meanwhile: no copy is better than a VM stopped for minutes. */
const COPY_TIMEOUT_MS = 60_000;
/** As long as a disk may need for the whole file. */
const FINISH_TIMEOUT_MS = 10 * 60_000;

const Bytes = z.number().int().min(0);
const ReadyAnswer = z.object({ step: z.literal('ready'), base_bytes: Bytes, dirty_bytes: Bytes });
const CopiedAnswer = z.object({
  step: z.literal('copied'),
  pages: Bytes,
  bytes: Bytes,
  elapsed_ms: z.number().min(0),
});
const FinishedAnswer = z.object({
  step: z.literal('finished'),
  allocated_bytes: Bytes,
  digest: z.string().regex(/^(?:[0-9a-f]{64})?$/u),
});
const ErrorAnswer = z.object({
  step: z.literal('error'),
  code: z.enum(['disk_full', 'vm_gone', 'internal']),
  message: z.string(),
});

export interface MemorySource {
  /** Pid of the VM's process. The caller ensures that it still is that process. */
  pid: number;
  /** The RAM file that the process has mapped privately; it never changes. */
  basePath: string;
  /** Must not exist yet. */
  targetPath: string;
  /** Size of the RAM. */
  sizeBytes: number;
}

/** A RAM file in the making. Any error, {@link abort} and the end of this process remove it. */
export class MemoryWriter implements AsyncDisposable {
  /** Bytes of data in the base, which the new file contains too. */
  readonly baseBytes: number;
  /** Bytes that the VM had changed when the file was prepared. */
  readonly dirtyBytes: number;
  readonly #process: CaptureProcess;
  readonly #targetPath: string;
  #isFinished = false;
  #ending: Promise<void> | undefined;

  private constructor(
    process: CaptureProcess,
    ready: { targetPath: string; baseBytes: number; dirtyBytes: number },
  ) {
    this.#process = process;
    this.#targetPath = ready.targetPath;
    this.baseBytes = ready.baseBytes;
    this.dirtyBytes = ready.dirtyBytes;
  }

  /** Creates the file, and does everything that is possible while the VM runs. */
  static async start(program: string, source: MemorySource): Promise<MemoryWriter> {
    const { pid, basePath: base, targetPath, sizeBytes } = source;
    const process = new CaptureProcess(program, ['save']);
    try {
      const plan = { pid, base, target: targetPath, size_bytes: sizeBytes };
      const ready = parseAnswer(await process.ask('ready', plan, READY_TIMEOUT_MS), ReadyAnswer, targetPath);
      const { base_bytes: baseBytes, dirty_bytes: dirtyBytes } = ready;
      return new MemoryWriter(process, { targetPath, baseBytes, dirtyBytes });
    } catch (error) {
      await process.end();
      // A killed program could not remove the file. A file that existed before is refused long before the deadline.
      if (error instanceof DeadlineError) await rm(targetPath, { force: true });
      throw error;
    }
  }

  /** Copies what the VM has changed, also since an earlier copy. The VM must be stopped. */
  async copy(): Promise<{ bytes: number; elapsedMs: number }> {
    const { bytes, elapsed_ms: elapsedMs } = await this.#ask('copy', {}, CopiedAnswer, COPY_TIMEOUT_MS);
    return { bytes, elapsedMs };
  }

  /**
   * Completes the file, which stays from then on. With `sync` its content is on disk and `digest` is the one that
   * {@link sumFiles} computes; without it `digest` is empty. The caller syncs the directory.
   */
  async finish({ sync }: { sync: boolean }): Promise<{ allocatedBytes: number; digest: string }> {
    const answer = await this.#ask('finish', { sync }, FinishedAnswer, FINISH_TIMEOUT_MS);
    this.#isFinished = true;
    await this.#process.end();
    return { allocatedBytes: answer.allocated_bytes, digest: answer.digest };
  }

  /** Ends the program. Resolves when it has ended and the file is removed, unless it was finished. */
  async abort(): Promise<void> {
    await (this.#ending ??= this.#end());
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.abort();
  }

  async #end(): Promise<void> {
    await this.#process.end();
    if (!this.#isFinished) await rm(this.#targetPath, { force: true });
  }

  async #ask<T extends z.ZodType>(
    step: string,
    request: object,
    answer: T,
    timeoutMs: number,
  ): Promise<z.infer<T>> {
    try {
      const line = await this.#process.ask(step, { step, ...request }, timeoutMs);
      return parseAnswer(line, answer, this.#targetPath);
    } catch (error) {
      // Not awaited: the caller must continue the VM first.
      this.#ending ??= this.#end();
      this.#ending.catch(() => undefined);
      throw error;
    }
  }
}

function parseAnswer<T extends z.ZodType>(line: unknown, answer: T, targetPath: string): z.infer<T> {
  const failure = ErrorAnswer.safeParse(line);
  if (!failure.success) return answer.parse(line);
  const { code, message } = failure.data;
  if (code === 'disk_full') {
    throw new AppError(
      'capacity',
      `disk: no room at ${dirname(targetPath)} for the memory of a sandbox; delete snapshots or sandboxes, or enlarge it`,
      {
        cause: new Error(message),
      },
    );
  }
  throw new Error(`saving the memory of a VM: ${message}`);
}

/** As long as a disk may need to read the files. */
const SUM_TIMEOUT_MS = 10 * 60_000;
const MAX_OUTPUT_BYTES = 4 << 20;

export interface FileSum {
  sizeBytes: number;
  /** SHA-256 over the SHA-256 of each 4 MiB, in hex. */
  digest: string;
}

const SumLine = z.union([
  z.object({
    path: z.string(),
    size_bytes: z.number().int().min(0),
    digest: z.string().regex(/^[0-9a-f]{64}$/u),
  }),
  z.object({ path: z.string(), error: z.string() }),
]);

/**
 * Computes digests with the program `capture`, on all cores and without reading holes. Throws if one cannot be read.
 */
export async function sumFiles(program: string, paths: readonly string[]): Promise<Map<string, FileSum>> {
  const sums = new Map<string, FileSum>();
  if (paths.length === 0) return sums;
  const { stdout, failure } = await runSum(program, paths);
  for (const line of stdout.split('\n').filter(Boolean)) {
    const found = SumLine.parse(JSON.parse(line));
    if ('error' in found) throw new Error(`summing ${found.path}: ${found.error}`);
    sums.set(found.path, { sizeBytes: found.size_bytes, digest: found.digest });
  }
  if (failure !== undefined) throw failure;
  const missing = paths.find((path) => !sums.has(path));
  if (missing !== undefined) throw new Error(`summing ${missing}: no answer`);
  return sums;
}

/** The program reports an unreadable file on standard output and with exit code 1. */
async function runSum(
  program: string,
  paths: readonly string[],
): Promise<{ stdout: string; failure?: Error }> {
  const options = {
    cwd: '/',
    env: {},
    timeout: SUM_TIMEOUT_MS,
    killSignal: 'SIGKILL' as const,
    maxBuffer: MAX_OUTPUT_BYTES,
  };
  return new Promise((resolve) => {
    execFile(program, ['sum', ...paths], options, (error, stdout) => {
      resolve(error === null ? { stdout } : { stdout, failure: error });
    });
  });
}
