/**
 * Wakes readers of audit logs for entries that another control has written: the sandbox has got another owner meanwhile, or a
 * snapshot of its disk was taken at another control. One query looks for the news of all logs that are being read here.
 */
import { sql } from 'kysely';
import type { Logger } from 'pino';
import type { Database } from '../db/database.ts';
import type { AuditLog } from './audit-log.ts';

const LOOK_EVERY_MS = 1_000;

export interface EntriesElsewhereParts {
  db: Database;
  audit: Pick<AuditLog, 'watched' | 'wake'>;
  log: Logger;
}

export class EntriesElsewhere implements Disposable {
  readonly #parts: EntriesElsewhereParts;
  readonly #timer: NodeJS.Timeout;
  /** The last entry of each log when it was last looked at. */
  #seen = new Map<string, number>();
  #isLooking = false;

  constructor(parts: EntriesElsewhereParts, intervalMs = LOOK_EVERY_MS) {
    this.#parts = parts;
    this.#timer = setInterval(() => void this.#look(), intervalMs);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  async #look(): Promise<void> {
    const { audit, log } = this.#parts;
    const ids = audit.watched();
    if (this.#isLooking || ids.length === 0) return;
    this.#isLooking = true;
    try {
      const last = await this.#readLast(ids);
      const former = this.#seen;
      this.#seen = last;
      // A reader that has just begun may have looked before the entry was written.
      for (const [id, seq] of last) if (former.get(id) !== seq) audit.wake(id);
    } catch (error) {
      log.debug({ err: error }, 'control looks later for entries of audit logs of other controls');
    } finally {
      this.#isLooking = false;
    }
  }

  async #readLast(ids: readonly string[]): Promise<Map<string, number>> {
    const { rows } = await sql<{ id: string; seq: number }>`
      SELECT id, last.seq FROM unnest(${[...ids]}::text[]) AS watched (id)
      JOIN LATERAL (
        SELECT seq FROM audit_entries WHERE sandbox_id = id ORDER BY seq DESC LIMIT 1
      ) last ON true`.execute(this.#parts.db);
    return new Map(rows.map(({ id, seq }) => [id, seq]));
  }
}
