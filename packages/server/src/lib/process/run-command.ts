import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { stretched } from '../waiting/deadline.ts';

const OUTPUT_LIMIT_BYTES = 1 << 20;
const DEFAULT_TIMEOUT_MS = 60_000;

const execFileAsync = promisify(execFile);

/** A tool failed; the message contains its output. */
class CommandError extends Error {
  constructor(command: string, detail: string, options?: ErrorOptions) {
    super(`${command}: ${detail.trim().slice(-1000)}`, options);
    this.name = 'CommandError';
  }
}

/** Runs a program without a shell and returns its standard output. Throws {@link CommandError}. */
export async function runCommand(
  path: string,
  args: readonly string[],
  timeoutMs = DEFAULT_TIMEOUT_MS,
): Promise<string> {
  try {
    const options = {
      timeout: stretched(timeoutMs),
      maxBuffer: OUTPUT_LIMIT_BYTES,
      killSignal: 'SIGKILL' as const,
    };
    const { stdout } = await execFileAsync(path, args, options);
    return stdout;
  } catch (error) {
    const failure = error as Error & { stderr?: string; killed?: boolean };
    const detail =
      failure.killed === true
        ? `did not end within ${stretched(timeoutMs)} ms`
        : failure.stderr || failure.message;
    throw new CommandError(path, detail, { cause: error });
  }
}
