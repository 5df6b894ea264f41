/** Errors of writing an audit log, and whether a retry may succeed. */
import { AppError } from '@coppice/contract';
import { isDatabaseAway, isTaken } from '../db/database-error.ts';

/** A taken `seq` was written by an earlier statement that was executed late, or by a control that takes over. */
export function mayRetry(error: unknown): boolean {
  return isDatabaseAway(error) || isTaken(error);
}

export function notWritten(cause: unknown): AppError {
  return new AppError('unavailable', 'the audit log cannot be written; try again', { cause });
}

export function gone(sandboxId: string): AppError {
  return new AppError('internal', 'the record of an audit log is gone', {
    details: { sandbox_id: sandboxId },
  });
}

/** Returns whether the chain's secret was sealed with another master key, so that the chain cannot be continued. */
export function isUnreadable(error: unknown): boolean {
  return error instanceof AppError && error.code === 'secret_unreadable';
}
