import type { Logger } from 'pino';
import type { Leadership } from './ownership/leadership.ts';

const INTERVAL_MS = 3_600_000;

/** Deletes what is old. */
interface Purged {
  purge: () => Promise<unknown>;
}

export interface PurgeParts {
  ownership: Leadership;
  /** Records in SQL, which one control deletes for all. */
  shared: readonly Purged[];
  /** Those that each control has of its own, such as the images at its runners. */
  own: readonly Purged[];
  log: Logger;
}

export function purgeHourly(parts: PurgeParts, stack: AsyncDisposableStack): void {
  const timer = setInterval(() => void purgeAll(parts), INTERVAL_MS);
  stack.defer(() => clearInterval(timer));
}

/** Never rejects: the next round tries again. */
export async function purgeAll({ ownership, shared, own, log }: PurgeParts): Promise<void> {
  const due = ownership.isLeading ? [...own, ...shared] : own;
  const results = await Promise.allSettled(due.map((one) => one.purge()));
  for (const result of results)
    if (result.status === 'rejected')
      log.warn(
        { err: result.reason as unknown },
        'expired Idempotency-Keys, preview links, sessions, events or deliveries could not be deleted; control tries again in an hour',
      );
}
