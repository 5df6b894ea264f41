/**
 * Records failed sign-ins in the audit logs of the person's organizations. Entries stay forever, so their number is
 * bounded: one for a person every five minutes, with the number of attempts since the one before. They are written in
 * the background: the caller of a failed sign-in must not learn from the time of the answer that the account exists.
 */
import type { Logger } from 'pino';
import { withDeadline } from '../../../lib/waiting/deadline.ts';
import type { OrganizationAudit } from '../../audit/organization/organization-audit.ts';
import type { Database } from '../../db/database.ts';

const INTERVAL_MS = 300_000;
/** How long a stop waits for entries: the database may be away. */
const STOP_MS = 5_000;
/** Limit of people in memory; beyond it the oldest are forgotten, with the attempts that are not written yet. */
const MAX_PEOPLE = 10_000;

interface Failures {
  count: number;
  address: string;
  writtenAt: number;
}

export interface FailedSignInsParts {
  db: Database;
  audit: OrganizationAudit;
  log: Pick<Logger, 'warn'>;
  now: () => number;
}

export class FailedSignIns implements AsyncDisposable {
  readonly #parts: FailedSignInsParts;
  readonly #people = new Map<string, Failures>();
  readonly #writing = new Set<Promise<void>>();

  constructor(parts: FailedSignInsParts) {
    this.#parts = parts;
  }

  /** Counts a failed sign-in, and writes an entry unless one was written a short time ago. Does not throw. */
  note(userId: string, address: string): void {
    const failures = this.#people.get(userId) ?? { count: 0, address, writtenAt: -Infinity };
    this.#people.delete(userId);
    this.#people.set(userId, failures);
    failures.count += 1;
    failures.address = address;
    if (this.#parts.now() - failures.writtenAt >= INTERVAL_MS) this.#write(userId, failures);
    for (const oldest of this.#people.keys()) {
      if (this.#people.size <= MAX_PEOPLE) return;
      this.#people.delete(oldest);
    }
  }

  /** Call after a sign-in: writes what is counted and not written. */
  settle(userId: string): void {
    const failures = this.#people.get(userId);
    if (failures !== undefined && failures.count > 0) this.#write(userId, failures);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const [userId, failures] of this.#people) if (failures.count > 0) this.#write(userId, failures);
    await withDeadline('entries of failed sign-ins', STOP_MS, Promise.all(this.#writing)).catch(
      (error: unknown) => this.#parts.log.warn({ err: error }, 'failed sign-ins are missing in audit logs'),
    );
  }

  #write(userId: string, failures: Failures): void {
    const { db, audit, log, now } = this.#parts;
    const { count, address } = failures;
    failures.count = 0;
    failures.writtenAt = now();
    const writing = db
      .transaction()
      .execute((transaction) =>
        audit.writeForMember(transaction, userId, {
          by: { type: 'unknown', id: null, address },
          notes: [{ event: 'session.failed', data: { user_id: userId, count } }],
        }),
      )
      .catch((error: unknown) => {
        // Written with the next entry.
        failures.count += count;
        log.warn({ err: error, user_id: userId }, 'a failed sign-in is not in the audit log yet');
      })
      .finally(() => this.#writing.delete(writing));
    this.#writing.add(writing);
  }
}
