/** Runs `nft` and `ip` with a script on standard input, so that one process handles a whole batch. */
import { AppError } from '@coppice/contract';
import { execFile } from 'node:child_process';
import { z } from 'zod';
import { stretched } from '../../../lib/waiting/deadline.ts';

const TOOL_TIMEOUT_MS = 15_000;
/** `ip -json address` prints about 600 bytes for each interface, of which there may be 65 535. */
const OUTPUT_LIMIT_BYTES = 64 << 20;

/** Paths of the programs that change the host's network. */
export interface ToolPaths {
  nft: string;
  ip: string;
}

const Interface = z.object({
  ifname: z.string(),
  mtu: z.int(),
  flags: z.array(z.string()),
  addr_info: z.array(
    z.object({
      family: z.string(),
      local: z.string().optional(),
      prefixlen: z.int().optional(),
      label: z.string().optional(),
    }),
  ),
});
/** One interface of the host in the output of `ip -json address`. */
export type Interface = z.infer<typeof Interface>;

const Route = z.object({ dst: z.string(), dev: z.string().optional() });
export type Route = z.infer<typeof Route>;

/** … and hostctl, which changes nothing but connections. */
export interface HostPrograms extends ToolPaths {
  hostctl: string;
}

export class KernelTools {
  readonly #paths: ToolPaths;

  constructor(paths: ToolPaths) {
    this.#paths = paths;
  }

  /**
   * Runs one atomic transaction. Uses `cat`: nft 1.0.9 accepts no socket as its input, and Node's pipes are sockets.
   */
  async nft(script: string): Promise<void> {
    await runWithInput('/bin/sh', ['-c', 'cat | "$0" -f -', this.#paths.nft], script);
  }

  /** Has the kernel check a transaction, and that it supports all features in it, without applying it. */
  async checkNft(script: string): Promise<void> {
    await runWithInput(this.#paths.nft, ['--check', '-f', '-'], script);
  }

  async ipBatch(commands: readonly string[]): Promise<void> {
    await runWithInput(this.#paths.ip, ['-batch', '-'], `${commands.join('\n')}\n`);
  }

  /** Continues after a command that fails, and returns the error; the caller checks the result. */
  async ipBatchForced(commands: readonly string[]): Promise<unknown> {
    try {
      await runWithInput(this.#paths.ip, ['-force', '-batch', '-'], `${commands.join('\n')}\n`);
      return undefined;
    } catch (error) {
      return error;
    }
  }

  async listInterfaces(): Promise<Interface[]> {
    return z
      .array(Interface)
      .parse(parseJsonList(await runWithInput(this.#paths.ip, ['-json', 'address'], '')));
  }

  async listRoutes(): Promise<Route[]> {
    return z
      .array(Route)
      .parse(parseJsonList(await runWithInput(this.#paths.ip, ['-json', '-4', 'route'], '')));
  }

  async hasTable(table: string): Promise<boolean> {
    const tables = await runWithInput(this.#paths.nft, ['list', 'tables', 'inet'], '');
    return tables.split('\n').includes(`table inet ${table}`);
  }
}

/** Parses a list. `ip -json` prints nothing for an empty list, and `{}` for an entry that a filter left out. */
function parseJsonList(text: string): unknown[] {
  const list: unknown = text.trim() === '' ? [] : JSON.parse(text);
  if (!Array.isArray(list)) throw new TypeError('ip -json did not print a list');
  return list.filter((entry) => typeof entry === 'object' && entry !== null && Object.keys(entry).length > 0);
}

async function runWithInput(path: string, args: readonly string[], input: string): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let pipeError: Error | undefined;
  const options = {
    timeout: stretched(TOOL_TIMEOUT_MS),
    maxBuffer: OUTPUT_LIMIT_BYTES,
    killSignal: 'SIGKILL' as const,
  };
  const child = execFile(path, args, options, (error, stdout, stderr) => {
    if (error === null) resolve(stdout);
    else reject(describeFailure([path, ...args].join(' '), error, stderr.trim() || pipeError?.message));
  });
  // A tool that exits before it has read everything breaks the pipe; its error output is the better reason.
  child.stdin?.on('error', (error) => {
    pipeError = error;
  });
  child.stdin?.end(input);
  return await promise;
}

/** Whether a tool was killed before it could report an error. */
export function wasCutOff(error: AppError): boolean {
  const { killed, signal } = (error.cause ?? {}) as { killed?: boolean; signal?: string | null };
  return killed === true || typeof signal === 'string';
}

function describeFailure(
  path: string,
  error: Error & { killed?: boolean },
  said: string | undefined,
): AppError {
  const detail =
    error.killed === true ? `not done within ${stretched(TOOL_TIMEOUT_MS)} ms` : (said ?? error.message);
  return new AppError('internal', `${path}: ${detail.slice(0, 1000)}`, { cause: error });
}
