/** What callers ask about their money: the rollup, the history, and the statement of a month. */
import { AppError, type HistoryRecord, type Statement, type UsageRecord } from '@coppice/contract';
import type { Database } from '../db/database.ts';
import { momentOf, type Clock } from '../sandbox/clock.ts';
import type { Credit } from './credit.ts';
import { buildHistoryRecord, listHistory, type HistoryFilter } from './history-store.ts';
import type { Month } from './month.ts';
import { buildStatement, CSV_HEAD, formatCsvLine } from './statement.ts';
import { readMonth, readMonthLines } from './statement-store.ts';
import { buildUsage } from './usage.ts';

const CSV_PAGE_LINES = 10_000;

export interface BillingParts {
  db: Database;
  clock: Clock;
  credit: Credit;
}

export class Billing {
  readonly #parts: BillingParts;

  constructor(parts: BillingParts) {
    this.#parts = parts;
  }

  async usage(organizationId: string): Promise<UsageRecord> {
    const { credit } = this.#parts;
    const [balance] = await credit.readBalances([organizationId]);
    if (balance === undefined) throw new AppError('internal', 'the organization is gone');
    return buildUsage(balance, credit.isOn);
  }

  /** The records, and when each ended, newest first. */
  async history(filter: HistoryFilter): Promise<{ records: HistoryRecord[]; endedAt: number[] }> {
    const rows = await listHistory(this.#parts.db, filter);
    return {
      records: rows.map(buildHistoryRecord),
      endedAt: rows.map((row) => row.ended_at ?? row.created_at),
    };
  }

  async statement(
    organizationId: string,
    month: Month,
    page: { limit: number; after: string },
  ): Promise<Statement> {
    const now = momentOf(this.#parts.clock);
    return buildStatement(
      month,
      await readMonth(this.#parts.db, { organizationId, month, now, ...page }),
      now,
    );
  }

  /** Its lines as CSV, however many: a reader that is slow is waited for. */
  async *statementCsv(organizationId: string, month: Month): AsyncGenerator<string, void, undefined> {
    const { db, clock } = this.#parts;
    yield CSV_HEAD;
    const query = { organizationId, month, limit: CSV_PAGE_LINES };
    for await (const lines of readMonthLines(db, query, () => momentOf(clock)))
      yield lines.map(formatCsvLine).join('');
  }
}
