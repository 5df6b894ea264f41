/** Webhooks in SQL. */
import { lockOrganization } from '../accounts/organizations/lock-organization.ts';
import type { DisabledReason } from '@coppice/contract';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { insertEvent } from '../events/insert-event.ts';
import type { WebhookRow, WebhookUpdate } from './webhook-tables.ts';

export type NewWebhookRow = Omit<
  WebhookRow,
  'disabled_reason' | 'failing_since' | 'sealed_old_secret' | 'old_secret_until'
>;

export class WebhookStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  within(transaction: Database): WebhookStore {
    return new WebhookStore(transaction);
  }

  /**
   * Returns undefined, and inserts nothing, if the organization has `limit` webhooks. Call inside a transaction.
   */
  async insert(row: NewWebhookRow, limit: number): Promise<WebhookRow | undefined> {
    await lockOrganization(this.#db, row.organization_id);
    const { count } = await this.#db
      .selectFrom('webhooks')
      .select(({ fn }) => fn.countAll<number>().as('count'))
      .where('organization_id', '=', row.organization_id)
      .executeTakeFirstOrThrow();
    if (count >= limit) return undefined;
    return this.#db.insertInto('webhooks').values(row).returningAll().executeTakeFirstOrThrow();
  }

  find(organizationId: string, id: string): Promise<WebhookRow | undefined> {
    return this.#db
      .selectFrom('webhooks')
      .selectAll()
      .where('organization_id', '=', organizationId)
      .where('id', '=', id)
      .executeTakeFirst();
  }

  /** Lists oldest first. */
  list(organizationId: string): Promise<WebhookRow[]> {
    return this.#db
      .selectFrom('webhooks')
      .selectAll()
      .where('organization_id', '=', organizationId)
      .orderBy('created_at')
      .orderBy('id')
      .execute();
  }

  listEnabled(
    organizationIds: readonly string[],
  ): Promise<Pick<WebhookRow, 'id' | 'organization_id' | 'types'>[]> {
    return this.#db
      .selectFrom('webhooks')
      .select(['id', 'organization_id', 'types'])
      .where('organization_id', 'in', [...organizationIds])
      .where('enabled', '=', true)
      .execute();
  }

  update(organizationId: string, id: string, change: WebhookUpdate): Promise<WebhookRow | undefined> {
    return this.#db
      .updateTable('webhooks')
      .set(change)
      .where('organization_id', '=', organizationId)
      .where('id', '=', id)
      .returningAll()
      .executeTakeFirst();
  }

  async remove(organizationId: string, id: string): Promise<boolean> {
    const { numDeletedRows } = await this.#db
      .deleteFrom('webhooks')
      .where('organization_id', '=', organizationId)
      .where('id', '=', id)
      .executeTakeFirst();
    return numDeletedRows > 0n;
  }

  /**
   * Locks a webhook. Call before its deliveries are changed in the same transaction: a deletion locks them in this order,
   * too. Returns false if there is none.
   */
  async lock(id: string): Promise<boolean> {
    const query = this.#db.selectFrom('webhooks').select('id').where('id', '=', id).forNoKeyUpdate();
    return (await query.executeTakeFirst()) !== undefined;
  }

  /** Forgets that deliveries failed. */
  async noteSuccess(id: string): Promise<void> {
    const update = this.#db.updateTable('webhooks').set({ failing_since: null });
    await update.where('id', '=', id).where('failing_since', 'is not', null).execute();
  }

  /** Returns the time of the first failure since the last success, which is `at` if there was none. */
  async noteFailure(id: string, at: number): Promise<number> {
    const row = await this.#db
      .updateTable('webhooks')
      .set({ failing_since: sql<number>`coalesce(failing_since, ${at})` })
      .where('id', '=', id)
      .returning('failing_since')
      .executeTakeFirst();
    return row?.failing_since ?? at;
  }

  /** Sets a new secret. With an overlap, the one before stays valid for as long. One statement: rotations may coincide. */
  async rotate(
    { organizationId, id }: { organizationId: string; id: string },
    { sealed, oldUntil }: { sealed: Buffer; oldUntil: number | null },
  ): Promise<WebhookRow | undefined> {
    return this.#db
      .updateTable('webhooks')
      .set((row) => ({
        sealed_secret: sealed,
        sealed_old_secret: oldUntil === null ? null : row.ref('sealed_secret'),
        old_secret_until: oldUntil,
      }))
      .where('organization_id', '=', organizationId)
      .where('id', '=', id)
      .returningAll()
      .executeTakeFirst();
  }

  /** Disables a webhook, and writes the event. Call inside a transaction. */
  async disable(
    { id, organization_id }: Pick<WebhookRow, 'id' | 'organization_id'>,
    reason: DisabledReason,
    at: number,
  ): Promise<void> {
    const { numUpdatedRows } = await this.#db
      .updateTable('webhooks')
      .set({ enabled: false, disabled_reason: reason })
      .where('id', '=', id)
      .where('enabled', '=', true)
      .executeTakeFirst();
    if (numUpdatedRows === 0n) return;
    const data = { webhook_id: id, reason };
    await insertEvent(this.#db, {
      type: 'webhook.disabled',
      data,
      at,
      organizationId: organization_id,
      teamId: null,
    });
  }
}
