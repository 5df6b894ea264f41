/** What goes wrong when an audit log is written, and whether it may go right later. */
import { AppError } from '@coppice/contract';
import { isDatabaseAway, isTaken } from '../db/database-error.ts';

/** A `seq` that is taken was written by a statement of ours that came through late, or by a control that takes over. */
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

/** The secret of the chain was sealed with another master key: nobody can go on with it. */
export function isUnreadable(error: unknown): boolean {
  return error instanceof AppError && error.code === 'secret_unreadable';
}
