/** Deliveries of webhooks in SQL. */
import type { DeliveryRecord, DeliveryState } from '@coppice/contract';
import { sql, type RawBuilder } from 'kysely';
import { hintChange } from '../db/change-hints.ts';
import type { Database } from '../db/database.ts';
import { buildDeliveryRecord, type LoggedDelivery } from './delivery-record.ts';
import type { AttemptRow, DeliveryRow, WebhookRow } from './webhook-tables.ts';

/** Attempts of a delivery that are kept. */
const MAX_ATTEMPTS = 10;
const KEPT_MS = 7 * 86_400_000;
/** Deliveries of one webhook that are kept when they are over. */
const MAX_KEPT = 10_000;
/** Limit of one deleting statement. */
const MAX_DELETED = 2_000;

/** A delivery whose time has come, and its webhook. */
export type DueDelivery = DeliveryRow &
  Pick<WebhookRow, 'organization_id' | 'url' | 'sealed_secret' | 'sealed_old_secret' | 'old_secret_until'>;

export interface DueLimits {
  /** Attempts in progress. */
  open: readonly Pick<DueDelivery, 'id' | 'webhook_id' | 'organization_id'>[];
  /** Attempts at a time for each webhook, for each organization, and further ones of all. */
  ofWebhook: number;
  ofOrganization: number;
  limit: number;
}

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
    await hintChange(this.#db, 'deliveries');
  }

  /**
   * Lists deliveries that are due, without those that are open, as many of each webhook and of each organization as have
   * room. Organizations with few open ones come first: those that do not keep up do not hold up the others.
   */
  async listDue(now: number, { open, ofWebhook, ofOrganization, limit }: DueLimits): Promise<DueDelivery[]> {
    const ids = open.map(({ id }) => id);
    const { rows } = await sql<DueDelivery>`
      WITH open AS (
        SELECT * FROM unnest(
          ${open.map(({ webhook_id }) => webhook_id)}::text[],
          ${open.map(({ organization_id }) => organization_id)}::text[]
        ) AS open (webhook_id, organization_id)
      )
      SELECT * FROM (
        SELECT due.*, organization_id, url, sealed_secret, sealed_old_secret, old_secret_until,
          row_number() OVER (PARTITION BY organization_id ORDER BY due.next_at, due.id)
            + (SELECT count(*) FROM open WHERE open.organization_id = webhooks.organization_id) AS place
        FROM webhooks CROSS JOIN LATERAL (
          SELECT * FROM webhook_deliveries
          WHERE webhook_id = webhooks.id AND state = 'pending' AND next_at <= ${now}
            AND id <> ALL(${ids}::text[])
          ORDER BY next_at, id
          LIMIT greatest(0, ${ofWebhook}::integer
            - (SELECT count(*) FROM open WHERE open.webhook_id = webhooks.id))
        ) due
        WHERE webhooks.enabled
      ) placed
      WHERE place <= ${ofOrganization}
      ORDER BY place, next_at, id LIMIT ${limit}`.execute(this.#db);
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

  /**
   * Writes what became of an attempt. A delivery that was asked for meanwhile stays due, unless it was delivered. Returns
   * false if the delivery is gone, or if the attempt is already written. Call inside a transaction.
   */
  async noteAttempt(
    attempt: AttemptRow,
    { state, next_at, was_due_at }: Pick<DeliveryRow, 'state' | 'next_at'> & { was_due_at: number | null },
  ): Promise<boolean> {
    const holds = state === 'delivered' ? sql<boolean>`true` : sql<boolean>`next_at = ${was_due_at}`;
    const { numUpdatedRows } = await this.#db
      .updateTable('webhook_deliveries')
      .set({
        attempts: attempt.attempt,
        tries: sql<number>`CASE WHEN ${holds} THEN tries + 1 ELSE tries END`,
        state: sql<DeliveryState>`CASE WHEN ${holds} THEN ${state} ELSE state END`,
        next_at: sql<number | null>`CASE WHEN ${holds} THEN ${next_at} ELSE next_at END`,
      })
      .where('id', '=', attempt.delivery_id)
      .where('attempts', '<', attempt.attempt)
      .executeTakeFirst();
    if (numUpdatedRows === 0n) return false;
    await this.#db.insertInto('webhook_attempts').values(attempt).execute();
    await this.#db
      .deleteFrom('webhook_attempts')
      .where('delivery_id', '=', attempt.delivery_id)
      .where('attempt', '<=', attempt.attempt - MAX_ATTEMPTS)
      .execute();
    return true;
  }

  /** Counts the deliveries that wait, up to `limit`. */
  countPending(webhookId: string, limit: number): Promise<number> {
    return this.#count(sql`webhook_id = ${webhookId} AND state = 'pending'`, limit);
  }

  /** Counts the tests that wait, up to `limit`. */
  countTests(webhookId: string, limit: number): Promise<number> {
    return this.#count(sql`webhook_id = ${webhookId} AND state = 'pending' AND event_id IS NULL`, limit);
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

  /** Deletes old deliveries, whatever became of them, and the oldest of webhooks that have too many. */
  async purge(now: number, keptMs = KEPT_MS): Promise<void> {
    await this.#deleteAll(sql`SELECT id FROM webhook_deliveries WHERE created_at < ${now - keptMs}`);
    const webhooks = await this.#db.selectFrom('webhooks').select('id').execute();
    for (const { id } of webhooks) await this.trim(id);
  }

  /** Deletes the oldest deliveries of a webhook that are over, if there are too many. */
  trim(webhookId: string, maxKept = MAX_KEPT): Promise<void> {
    return this.#deleteAll(sql`
      SELECT id FROM webhook_deliveries WHERE webhook_id = ${webhookId} AND state <> 'pending'
      ORDER BY created_at DESC, id DESC OFFSET ${maxKept}`);
  }

  async #count(condition: RawBuilder<unknown>, limit: number): Promise<number> {
    const { rows } = await sql<{ count: number }>`
      SELECT count(*)::integer AS count FROM (
        SELECT FROM webhook_deliveries WHERE ${condition} LIMIT ${limit}
      ) counted`.execute(this.#db);
    return rows[0]?.count ?? 0;
  }

  /** In pieces: statements have a deadline. Skips what another transaction deletes, which would wait for this one. */
  async #deleteAll(ids: RawBuilder<unknown>): Promise<void> {
    for (;;) {
      const { numAffectedRows = 0n } = await sql`
        DELETE FROM webhook_deliveries WHERE id IN (
          ${ids} LIMIT ${MAX_DELETED} FOR UPDATE SKIP LOCKED
        )`.execute(this.#db);
      if (numAffectedRows < MAX_DELETED) return;
    }
  }

  /** One statement, so that a delivery and its attempts are of one moment. */
  async #select(condition: RawBuilder<boolean>, limit: number): Promise<LoggedDelivery[]> {
    const { rows } = await sql<LoggedDelivery>`
      SELECT id, event_id, type, state, created_at, next_at, ARRAY(
        SELECT row_to_json(latest) FROM (
          SELECT * FROM webhook_attempts WHERE delivery_id = webhook_deliveries.id
          ORDER BY attempt DESC LIMIT ${MAX_ATTEMPTS}
        ) latest ORDER BY attempt
      ) AS log
      FROM webhook_deliveries WHERE ${condition}
      ORDER BY created_at DESC, id DESC LIMIT ${limit}`.execute(this.#db);
    return rows;
  }
}
