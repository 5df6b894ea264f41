/** The frame of the service's commands. An error that a person can fix is printed as one line, without a stack. */
import { AppError } from '@coppice/contract';
import { ConfigError } from '../config/config.ts';
import { BackupError } from '../control/backup/backup-format.ts';
import { explainStart, StartError } from '../start-error.ts';

/** The arguments of the command are invalid. */
export class UsageError extends Error {}

const TOLD = [AppError, BackupError, ConfigError, StartError, UsageError];
const TOLD_CODE = /^(?:ERR_PARSE_ARGS_|E[A-Z]+$)/u;

/** Runs `main` and prints its error. Exit code 2: invalid arguments, 1: failed. */
export async function runCommand(name: string, main: () => Promise<void>): Promise<void> {
  try {
    await main();
  } catch (error) {
    process.stderr.write(`${name}: ${describe(error)}\n`);
    process.exitCode = error instanceof UsageError ? 2 : 1;
  }
}

function describe(error: unknown): string {
  const told = explainStart(error);
  if (!(told instanceof Error)) return String(told);
  const isTold =
    TOLD.some((kind) => told instanceof kind) || TOLD_CODE.test((told as NodeJS.ErrnoException).code ?? '');
  return isTold ? told.message : String(told.stack);
}
