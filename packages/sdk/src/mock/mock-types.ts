/** Types of the mock that users see. They depend on nothing but the client's own types. */

/** A command that a mocked sandbox was asked to run. */
export interface MockCommand {
  /** Id of the sandbox. */
  sandboxId: string;
  /** The command. */
  command: string;
  /** Seconds after which the service would kill it. */
  timeout: number;
  /** Variables of the sandbox and of the call. */
  env: Record<string, string>;
  /** Working directory of the call, else of the sandbox. */
  cwd: string | undefined;
  /** User of the call. */
  user: string | undefined;
  /** Text for standard input. */
  stdin: string | undefined;
}

/** The outcome of a mocked command. */
export interface MockCommandResult {
  /** Exit code. Default 0. */
  exitCode?: number | undefined;
  /** Standard output. Default: none. */
  stdout?: string | undefined;
  /** Standard error. Default: none. */
  stderr?: string | undefined;
  /** True if the timeout elapsed; the exit code is then 124 by default. */
  timedOut?: boolean | undefined;
}

/** Decides what a command does. */
export type ExecHandler = (command: MockCommand) => MockCommandResult | Promise<MockCommandResult>;
