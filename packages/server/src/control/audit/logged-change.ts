import { AppError, type ErrorCode } from '@coppice/contract';

/** Refusals before the first step: nothing was changed. */
const REFUSALS: ReadonlySet<ErrorCode> = new Set([
  'invalid_request',
  'invalid_state',
  'already_exists',
  'file_not_found',
  'not_found',
  'unavailable',
]);

/** Refusals of a transfer before its first step. One that fails later may leave directories, or a part of an archive. */
export const TRANSFER_REFUSALS: ReadonlySet<ErrorCode> = new Set([
  'invalid_state',
  'not_found',
  'unavailable',
]);

/**
 * Changes something in a guest, and logs it before the caller is answered. A change that fails on the way is logged as
 * not complete, so that no part of a change is missing in the log.
 */
export async function logChange<T>(
  append: (outcome: { complete?: false }) => Promise<unknown>,
  change: () => Promise<T>,
  refusals: ReadonlySet<ErrorCode> = REFUSALS,
): Promise<T> {
  let changed: T;
  try {
    changed = await change();
  } catch (error) {
    if (!(error instanceof AppError && refusals.has(error.code))) await append({ complete: false });
    throw error;
  }
  await append({});
  return changed;
}
