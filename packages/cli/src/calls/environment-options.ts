/**
 * Environment variables for the guest. A secret should be in no argument, because other users of the machine see those, and the
 * shell keeps them: a name alone takes the value from the environment of this process, and a file can hold many. No message
 * includes a value, also not a text without `=`, which may be one.
 */
import { closeSync, openSync, readSync } from 'node:fs';
import type { Command } from 'commander';
import { UsageError } from '../output/failure.ts';
import { collect, joinEntries, parsePair } from './parse-values.ts';

/** The service accepts 32 KiB. */
const MAX_FILE_BYTES = 65_536;

export interface EnvironmentOptions {
  env?: Record<string, string>;
  envFrom?: string[];
}

/** Adds `--env` and `--env-from`. Node.js reads a file named by `--env-file` itself, also if that follows the program. */
export function addEnvironmentOptions(command: Command): Command {
  return command
    .option(
      '-e, --env <key[=value]>',
      'environment variable; without a value, that of your own environment, which keeps a secret out of the list of processes; may be repeated',
      (text, before: Record<string, string> | undefined) => parseVariable(text, before ?? {}),
    )
    .option(
      '--env-from <file>',
      'file with a key=value or a key in each line; --env precedes; may be repeated',
      collect,
    );
}

/** Returns the variables of all options. Undefined if there is none, which leaves those of the sandbox. */
export function readEnvironment({
  env,
  envFrom = [],
}: EnvironmentOptions): Record<string, string> | undefined {
  if (env === undefined && envFrom.length === 0) return undefined;
  let variables: Record<string, string> = {};
  for (const file of envFrom) variables = readFile(file, variables);
  return joinEntries(variables, Object.entries(env ?? {}));
}

/** Adds a `key=value`, or a key whose value is in the environment of this process. */
function parseVariable(
  text: string,
  before: Record<string, string>,
  source = '--env',
): Record<string, string> {
  const end = text.indexOf('=');
  if (end === 0 || text === '') throw new UsageError(`${source}: there is no name before the "="`);
  if (end > 0) return parsePair(text, before);
  const value = process.env[text];
  if (value !== undefined) return joinEntries(before, [[text, value]]);
  throw new UsageError(
    `${source}: a name without "=" takes the value from your environment, which has no variable of this name: export it, or give key=value`,
  );
}

function readFile(path: string, before: Record<string, string>): Record<string, string> {
  let variables = before;
  for (const [index, line] of readBounded(path).split(/\r?\n/u).entries())
    if (line.trim() !== '' && !line.trimStart().startsWith('#'))
      variables = parseVariable(
        line.trimStart().replace(/^export\s+/u, ''),
        variables,
        `--env-from: line ${index + 1} of ${path}`,
      );
  return variables;
}

/** Reads a file or a pipe, such as `<(pass show app)`. */
function readBounded(path: string): string {
  const buffer = Buffer.alloc(MAX_FILE_BYTES + 1);
  let size = 0;
  try {
    const file = openSync(path, 'r');
    try {
      for (let count = 1; count > 0 && size < buffer.length; size += count)
        count = readSync(file, buffer, size, buffer.length - size, null);
    } finally {
      closeSync(file);
    }
  } catch (error) {
    throw new UsageError(`--env-from: ${path} cannot be read: ${(error as Error).message}`);
  }
  if (size > MAX_FILE_BYTES) throw new UsageError(`--env-from: ${path} is larger than 64 KiB`);
  return buffer.toString('utf8', 0, size);
}
