/**
 * Writes the RAM of a running VM to a file, by the program `capture` (`capture/internal/save` describes the steps): this
 * process would be too slow, and would serve nobody meanwhile. The VM is stopped by the caller from before {@link
 * MemoryWriter.copy} until it has settled.
 */
import { execFile } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { z } from 'zod';
import { AppError } from '@coppice/contract';
import { DeadlineError } from '../../lib/waiting/deadline.ts';
import { CaptureProcess } from './capture-process.ts';

/** The copy of the base is as long as a disk takes for it. */
const READY_TIMEOUT_MS = 5 * 60_000;
/** The VM is stopped: rather none than one that stands still for minutes. */
const COPY_TIMEOUT_MS = 60_000;
/** As long as a disk takes for all of it. */
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
  /** Of the VM's process; the caller makes sure that it is still that one. */
  pid: number;
  /** The RAM file that the process has mapped privately; it never changes. */
  basePath: string;
  /** Must not exist yet. */
  targetPath: string;
  /** Of the RAM. */
  sizeBytes: number;
}

/** A RAM file in the making. It is removed by any error, by {@link abort}, and by the end of this process. */
export class MemoryWriter implements AsyncDisposable {
  /** Data of the base, which the new file has in common with it. */
  readonly baseBytes: number;
  /** What the VM had changed when the file was made ready for it. */
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

  /** Makes the file, with all that can be done while the VM runs. */
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
      // One that was killed could not remove it. A file that was there before is refused long before the deadline.
      if (error instanceof DeadlineError) await rm(targetPath, { force: true });
      throw error;
    }
  }

  /** Copies what the VM has changed, since an earlier copy too; it has to be stopped. */
  async copy(): Promise<{ bytes: number; elapsedMs: number }> {
    const { bytes, elapsed_ms: elapsedMs } = await this.#ask('copy', {}, CopiedAnswer, COPY_TIMEOUT_MS);
    return { bytes, elapsedMs };
  }

  /**
   * The file stays from here on. With `sync` its content is on the disk, and `digest` is its sum as {@link
   * sumFiles} has it; else it is empty. The directory is the caller's to sync.
   */
  async finish({ sync }: { sync: boolean }): Promise<{ allocatedBytes: number; digest: string }> {
    const answer = await this.#ask('finish', { sync }, FinishedAnswer, FINISH_TIMEOUT_MS);
    this.#isFinished = true;
    await this.#process.end();
    return { allocatedBytes: answer.allocated_bytes, digest: answer.digest };
  }

  /** Resolves when the program has ended and the file is gone, unless it was finished. */
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
      // The caller has a VM to continue before it waits for this.
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

/** As long as a disk takes to read them. */
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

/** Sums files by the program `capture`, on all cores and without reading their holes. Throws if one cannot be read. */
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

/** A file that cannot be read is told on standard output, and with exit code 1. */
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
