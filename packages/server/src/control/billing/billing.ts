/** Billing as callers see it: usage, history, and the statement of a month. */
import { AppError, type HistoryRecord, type Statement, type UsageRecord } from '@coppice/contract';
import type { Reach } from '../accounts/organizations/reach.ts';
import type { Database } from '../db/database.ts';
import { momentOf, type Clock } from '../time/clock.ts';
import type { Credit } from './credit/credit.ts';
import { buildHistoryRecord, listHistory, type HistoryFilter } from './history-store.ts';
import type { Month } from './months/month.ts';
import { buildStatement, CSV_HEAD, formatCsvDisk, formatCsvLine } from './statement/statement.ts';
import { readMonth, readMonthLines } from './statement/statement-store.ts';
import { readMonthOfDisks } from './storage/read-month.ts';
import { readTeamAccount } from './team-account.ts';
import { buildUsage, showCredit } from './usage.ts';

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

  /** Credit that every organization gets at first, in cents; undefined if credit is off. */
  get welcomeCents(): number | undefined {
    return this.#parts.credit.welcomeCents;
  }

  /**
   * Returns the usage in a reach. Credit belongs to the organization, so only keys that see all of it see the credit.
   */
  async usage(reach: Reach): Promise<UsageRecord> {
    const { credit, db, clock } = this.#parts;
    if (reach.onlyTeamId !== null) {
      const now = momentOf(clock);
      return buildUsage(await readTeamAccount(db, reach.onlyTeamId), now);
    }
    const [balance] = await credit.readBalances([reach.organizationId]);
    if (balance === undefined) throw new AppError('internal', 'the organization is gone');
    return { ...buildUsage(balance.account, balance.now), ...(credit.isOn ? showCredit(balance) : {}) };
  }

  /** Returns records, newest first, and the end of each in Unix milliseconds. */
  async history(filter: HistoryFilter): Promise<{ records: HistoryRecord[]; endedAt: number[] }> {
    const rows = await listHistory(this.#parts.db, filter);
    return {
      records: rows.map(buildHistoryRecord),
      endedAt: rows.map((row) => row.ended_at ?? row.created_at),
    };
  }

  async statement(reach: Reach, month: Month, page: { limit: number; after: string }): Promise<Statement> {
    const now = momentOf(this.#parts.clock);
    return buildStatement(month, await readMonth(this.#parts.db, { reach, month, now, ...page }), now);
  }

  /** Yields the statement's lines as CSV, however many, at the speed of the reader. */
  async *statementCsv(reach: Reach, month: Month): AsyncGenerator<string, void, undefined> {
    const { db, clock } = this.#parts;
    yield CSV_HEAD;
    const query = { reach, month, limit: CSV_PAGE_LINES };
    for await (const lines of readMonthLines(db, query, () => momentOf(clock)))
      yield lines.map(formatCsvLine).join('');
    const disks = await readMonthOfDisks(db, { reach, month, nowMs: clock.wallMs() });
    if (disks.length > 0) yield disks.map(formatCsvDisk).join('');
  }
}
