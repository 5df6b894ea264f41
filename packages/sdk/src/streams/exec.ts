import type { CallOptions } from '../transport/client-options.ts';
import type { CallRequest, Transport } from '../transport/transport.ts';
import { buildWireBody, readFlag, readNumber, readObject, readString } from '../transport/wire.ts';

const DEFAULT_EXEC_TIMEOUT_SECONDS = 30;

/** Options of a command. */
export interface ExecOptions extends CallOptions {
  /** Seconds (1–86 400) after which the command is killed. Default 30. */
  timeout?: number | undefined;
  /** Working directory. Default: the `cwd` of the sandbox, else the image's WORKDIR, else `/workspace`. */
  cwd?: string | undefined;
  /** Environment variables that are added to those of the image and of the sandbox, and win over them. */
  env?: Record<string, string> | undefined;
  /** User that runs the command: name, uid, `name:group` or `uid:gid`. Default: the image's USER, else root. */
  user?: string | undefined;
  /** Text that the command reads on standard input. Default: no input. */
  stdin?: string | undefined;
}

/** Result of a command. An exit code other than zero is a result, not an error. */
export interface ExecResult {
  /** Exit code of the command: 124 when the timeout elapsed, 128 + n when signal n ended it. */
  exitCode: number;
  /** Standard output. */
  stdout: string;
  /** Standard error. */
  stderr: string;
  /** True if the timeout elapsed and the command was killed. */
  timedOut: boolean;
  /** True if output beyond the service's limit (at most 16 MiB for each stream) was dropped. */
  truncated: boolean;
}

const EXEC_FIELDS = {
  timeout: 'timeout',
  cwd: 'cwd',
  env: 'env',
  user: 'user',
  stdin: 'stdin',
} as const satisfies Record<Exclude<keyof ExecOptions, 'signal'>, string>;

/**
 * Runs a command in the sandbox at `path`. The deadline is the timeout of the command plus the client's `timeoutMs`.
 */
export async function execCommand(
  transport: Transport,
  path: string,
  command: string,
  options: ExecOptions,
): Promise<ExecResult> {
  const request = buildExecRequest(transport, `${path}/exec`, command, options);
  return (await transport.callJson(request, parseExecResult)).value;
}

/** Returns the request of a buffered or streamed command. Throws `TypeError` for an unknown option. */
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

/** Returns the timeout in milliseconds. The service, not the client, refuses a timeout that is not a number. */
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
