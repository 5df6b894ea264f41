import type { CallOptions } from '../transport/client-options.ts';
import type { CallRequest, Transport } from '../transport/transport.ts';
import { buildWireBody, readFlag, readNumber, readObject, readString } from '../transport/wire.ts';

const DEFAULT_EXEC_TIMEOUT_SECONDS = 30;

/** How to run a command. */
export interface ExecOptions extends CallOptions {
  /** Seconds after which the command is killed. Default 30. */
  timeout?: number | undefined;
  /** Working directory. Default: the image's, else `/workspace`. */
  cwd?: string | undefined;
  /** Added to the environment of the image. */
  env?: Record<string, string> | undefined;
  /** Name or uid, with `:group` if you like. Default: the image's user, else root. */
  user?: string | undefined;
  /** What the command reads on standard input. Default: nothing. */
  stdin?: string | undefined;
}

/** How a command ended. An exit code other than zero is a result, not an error. */
export interface ExecResult {
  /** 124 when the timeout elapsed, 128 + n when signal n ended it. */
  exitCode: number;
  stdout: string;
  stderr: string;
  /** The timeout elapsed and the command was killed. */
  timedOut: boolean;
  /** Output beyond the service's cap (16 MiB a stream by default) was dropped. */
  truncated: boolean;
}

const EXEC_FIELDS = {
  timeout: 'timeout',
  cwd: 'cwd',
  env: 'env',
  user: 'user',
  stdin: 'stdin',
} as const satisfies Record<Exclude<keyof ExecOptions, 'signal'>, string>;

/** `path` is that of the sandbox. The deadline leaves the command its whole timeout. */
export async function execCommand(
  transport: Transport,
  path: string,
  command: string,
  options: ExecOptions,
): Promise<ExecResult> {
  const request = buildExecRequest(transport, `${path}/exec`, command, options);
  return (await transport.callJson(request, parseExecResult)).value;
}

/** What a buffered and a streamed command send alike. */
export function buildExecRequest(
  transport: Transport,
  path: string,
  command: string,
  options: ExecOptions,
): CallRequest {
  const { signal, ...rest } = options;
  const timeout = rest.timeout ?? DEFAULT_EXEC_TIMEOUT_SECONDS;
  const body = { command, ...buildWireBody({ ...rest, timeout }, EXEC_FIELDS, 'exec') };
  return {
    method: 'POST',
    path,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    idempotent: false,
    signal,
    timeoutMs: commandMs(timeout) + transport.timeoutMs,
  };
}

/** A timeout that is no number is left for the service to refuse. */
function commandMs(timeoutSeconds: number): number {
  return Number.isFinite(timeoutSeconds) ? Math.max(0, timeoutSeconds) * 1000 : 0;
}

function parseExecResult(value: unknown): ExecResult {
  const result = readObject(value, 'the exec result');
  return {
    exitCode: readNumber(result, 'exit_code'),
    stdout: readString(result, 'stdout'),
    stderr: readString(result, 'stderr'),
    timedOut: readFlag(result, 'timed_out'),
    truncated: readFlag(result, 'truncated'),
  };
}
