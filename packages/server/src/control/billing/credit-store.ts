/** Grants of credit, and since when there is none left, in SQL. */
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';

export interface Welcome {
  organizationId: string;
  cents: number;
  /** What it had cost before there was credit: settled, so that the welcome is whole. */
  spentCents: number;
}

/** Once for each organization, whoever asks how often. */
export async function grantWelcome(
  db: Database,
  { organizationId, cents, spentCents }: Welcome,
): Promise<void> {
  await db.transaction().execute(async (transaction) => {
    const made = await transaction
      .insertInto('credit_grants')
      .values({ organization_id: organizationId, cents, kind: 'welcome', note: 'of every new organization' })
      .onConflict((conflict) => conflict.doNothing())
      .executeTakeFirst();
    if (made.numInsertedOrUpdatedRows !== 1n || spentCents === 0) return;
    await transaction
      .insertInto('credit_grants')
      .values({
        organization_id: organizationId,
        cents: spentCents,
        kind: 'before',
        note: 'what it had cost before there was credit',
      })
      .execute();
  });
}

/** More credit for an organization; below 0 takes some back. */
export async function grantCredit(
  db: Database,
  { organizationId, cents, note }: { organizationId: string; cents: number; note: string },
): Promise<void> {
  await db.insertInto('credit_grants').values({ organization_id: organizationId, cents, note }).execute();
}

/** Null when there is credit again. The first time of several counts. */
export async function setExhausted(db: Database, organizationId: string, at: number | null): Promise<void> {
  await db
    .insertInto('billing_accounts')
    .values({
      organization_id: organizationId,
      ended_sandboxes: 0,
      vcpu_ms: '0',
      mem_mib_ms: '0',
      exhausted_at: at,
    })
    .onConflict((conflict) =>
      conflict.column('organization_id').doUpdateSet({
        exhausted_at: sql<number | null>`CASE WHEN excluded.exhausted_at IS NULL THEN NULL
          ELSE coalesce(billing_accounts.exhausted_at, excluded.exhausted_at) END`,
      }),
    )
    .execute();
}
