import type { Command } from 'commander';
import type { AttachedOptions } from '../attach/attached-command.ts';
import { addEnvironmentOptions, readEnvironment, type EnvironmentOptions } from './environment-options.ts';
import { parseSeconds } from './parse-values.ts';

export interface ExecOptions extends EnvironmentOptions {
  cwd?: string;
  user?: string;
  timeLimit?: number;
  input: boolean;
}

/** The most that the service allows: 24 hours. */
const NO_LIMIT_S = 86_400;

/** Adds the options of a command in the guest, without its time limit. */
export function addProcessOptions(command: Command): Command {
  return addDirectoryAndUser(addEnvironmentOptions(command));
}

/** Adds the directory and the user of a command in the guest. */
export function addDirectoryAndUser(command: Command): Command {
  return command
    .option('-w, --cwd <directory>', "working directory (default: the sandbox's)")
    .option('-u, --user <user>', "name, uid, name:group or uid:gid (default: the image's, else root)");
}

/** Adds the options of a command whose input and output are those of the command line. */
export function addExecOptions(command: Command): Command {
  return addProcessOptions(command)
    .option(
      '--time-limit <time>',
      'kills the command after this time, at most 24h (default: 24h)',
      parseSeconds,
    )
    .option('-n, --no-input', 'gives the command no input, for loops that read standard input themselves');
}

/** Returns the options for the client. Keys that a person types belong to a terminal, which only a shell has. */
export function toAttachedOptions({ cwd, user, timeLimit, input, ...rest }: ExecOptions): AttachedOptions {
  const env = readEnvironment(rest);
  return { env, cwd, user, timeout: timeLimit ?? NO_LIMIT_S, hasInput: input && !process.stdin.isTTY };
}
