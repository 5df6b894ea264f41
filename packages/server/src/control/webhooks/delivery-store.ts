/** Deliveries of webhooks in SQL. */
import type { DeliveryRecord, DeliveryState } from '@coppice/contract';
import { sql, type RawBuilder } from 'kysely';
import type { Database } from '../db/database.ts';
import { buildDeliveryRecord, type LoggedDelivery } from './delivery-record.ts';
import type { AttemptRow, DeliveryRow, WebhookRow } from './webhook-tables.ts';

/** Attempts that are listed with a delivery. */
const MAX_LISTED_ATTEMPTS = 10;
const KEPT_MS = 7 * 86_400_000;

/** A delivery whose time has come, and its webhook. */
export type DueDelivery = DeliveryRow &
  Pick<
    WebhookRow,
    'organization_id' | 'url' | 'failing_since' | 'sealed_secret' | 'sealed_old_secret' | 'old_secret_until'
  >;

export interface DeliveryFilter {
  webhookId: string;
  limit: number;
  after?: { createdAt: number; id: string };
  state?: DeliveryState | undefined;
}

export class DeliveryStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  within(transaction: Database): DeliveryStore {
    return new DeliveryStore(transaction);
  }

  async insert(rows: readonly Omit<DeliveryRow, 'attempts' | 'tries'>[]): Promise<void> {
    if (rows.length === 0) return;
    await this.#db
      .insertInto('webhook_deliveries')
      .values([...rows])
      .execute();
  }

  /**
   * Lists deliveries that are due, without those of `busy`, a few of each webhook: one that does not keep up does not
   * hold up the others.
   */
  async listDue(
    now: number,
    { busy, ofOne, limit }: { busy: readonly string[]; ofOne: number; limit: number },
  ): Promise<DueDelivery[]> {
    const { rows } = await sql<DueDelivery>`
      SELECT due.*, organization_id, url, failing_since, sealed_secret, sealed_old_secret, old_secret_until
      FROM webhooks CROSS JOIN LATERAL (
        SELECT * FROM webhook_deliveries
        WHERE webhook_id = webhooks.id AND state = 'pending' AND next_at <= ${now}
          AND id <> ALL(${[...busy]}::text[])
        ORDER BY next_at, id LIMIT ${ofOne}
      ) due
      WHERE webhooks.enabled
      ORDER BY due.next_at, due.id LIMIT ${limit}`.execute(this.#db);
    return rows;
  }

  /** Returns the time of the next delivery that is not due yet; undefined if there is none. */
  async findNextAt(now: number): Promise<number | undefined> {
    const { rows } = await sql<{ next_at: number | null }>`
      SELECT min(next.next_at)::bigint AS next_at
      FROM webhooks CROSS JOIN LATERAL (
        SELECT next_at FROM webhook_deliveries
        WHERE webhook_id = webhooks.id AND state = 'pending' AND next_at > ${now}
        ORDER BY next_at LIMIT 1
      ) next
      WHERE webhooks.enabled`.execute(this.#db);
    return rows[0]?.next_at ?? undefined;
  }

  /** Writes what became of an attempt. Returns false if the delivery is gone. */
  async noteAttempt(attempt: AttemptRow, outcome: Pick<DeliveryRow, 'state' | 'next_at'>): Promise<boolean> {
    const { numUpdatedRows } = await this.#db
      .updateTable('webhook_deliveries')
      .set((row) => ({ ...outcome, attempts: attempt.attempt, tries: sql<number>`${row.ref('tries')} + 1` }))
      .where('id', '=', attempt.delivery_id)
      .executeTakeFirst();
    if (numUpdatedRows === 0n) return false;
    await this.#db.insertInto('webhook_attempts').values(attempt).execute();
    return true;
  }

  /** Counts the deliveries that wait, up to `limit`. */
  async countPending(webhookId: string, limit: number): Promise<number> {
    const { rows } = await sql<{ count: number }>`
      SELECT count(*)::integer AS count FROM (
        SELECT FROM webhook_deliveries WHERE webhook_id = ${webhookId} AND state = 'pending' LIMIT ${limit}
      ) waiting`.execute(this.#db);
    return rows[0]?.count ?? 0;
  }

  /** Makes a delivery due now, with all its tries. Returns false if there is none. */
  async retry(webhookId: string, id: string, now: number): Promise<boolean> {
    const { numUpdatedRows } = await this.#db
      .updateTable('webhook_deliveries')
      .set({ state: 'pending', next_at: now, tries: 0 })
      .where('id', '=', id)
      .where('webhook_id', '=', webhookId)
      .executeTakeFirst();
    return numUpdatedRows > 0n;
  }

  async find(webhookId: string, id: string): Promise<DeliveryRecord | undefined> {
    const rows = await this.#select(sql<boolean>`webhook_id = ${webhookId} AND id = ${id}`, 1);
    return rows.map(buildDeliveryRecord)[0];
  }

  /** Lists newest first. */
  async list({ webhookId, limit, after, state }: DeliveryFilter): Promise<{
    records: DeliveryRecord[];
    createdAt: number[];
  }> {
    const conditions = [sql<boolean>`webhook_id = ${webhookId}`];
    if (after !== undefined)
      conditions.push(sql<boolean>`(created_at, id) < (${after.createdAt}, ${after.id})`);
    if (state !== undefined) conditions.push(sql<boolean>`state = ${state}`);
    const rows = await this.#select(sql<boolean>`${sql.join(conditions, sql` AND `)}`, limit);
    return { records: rows.map(buildDeliveryRecord), createdAt: rows.map((row) => row.created_at) };
  }

  /** Deletes old deliveries, whatever became of them. */
  async purge(now: number, keptMs = KEPT_MS): Promise<void> {
    await this.#db
      .deleteFrom('webhook_deliveries')
      .where('created_at', '<', now - keptMs)
      .execute();
  }

  /** One statement, so that a delivery and its attempts are of one moment. */
  async #select(condition: RawBuilder<boolean>, limit: number): Promise<LoggedDelivery[]> {
    const { rows } = await sql<LoggedDelivery>`
      SELECT id, event_id, type, state, created_at, next_at, ARRAY(
        SELECT row_to_json(latest) FROM (
          SELECT * FROM webhook_attempts WHERE delivery_id = webhook_deliveries.id
          ORDER BY attempt DESC LIMIT ${MAX_LISTED_ATTEMPTS}
        ) latest ORDER BY attempt
      ) AS log
      FROM webhook_deliveries WHERE ${condition}
      ORDER BY created_at DESC, id DESC LIMIT ${limit}`.execute(this.#db);
    return rows;
  }
}
