/** Grants of credit, and the time since which none is left, in SQL. */
import { sql } from 'kysely';
import type { Database } from '../../db/database.ts';

export interface Welcome {
  organizationId: string;
  cents: number;
  /** The organization's cost before credit was turned on; it is granted, too, so that the welcome credit is whole. */
  spentCents: number;
}

/** Grants the welcome credit once for each organization, however often it is called. */
export async function grantWelcome(
  db: Database,
  { organizationId, cents, spentCents }: Welcome,
): Promise<void> {
  await db.transaction().execute(async (transaction) => {
    const made = await transaction
      .insertInto('credit_grants')
      .values({ organization_id: organizationId, cents, kind: 'welcome', note: 'welcome credit' })
      .onConflict((conflict) => conflict.doNothing())
      .executeTakeFirst();
    if (made.numInsertedOrUpdatedRows !== 1n || spentCents === 0) return;
    await transaction
      .insertInto('credit_grants')
      .values({
        organization_id: organizationId,
        cents: spentCents,
        kind: 'before',
        note: 'cost before credit was turned on',
      })
      .execute();
  });
}

/** Grants credit to an organization; a negative amount takes some back. */
export async function grantCredit(
  db: Database,
  { organizationId, cents, note }: { organizationId: string; cents: number; note: string },
): Promise<void> {
  await db.insertInto('credit_grants').values({ organization_id: organizationId, cents, note }).execute();
}

/**
 * Sets the time of exhaustion; null clears it. Returns false, and changes nothing, if it is set or cleared already: of many controls that
 * find it, one changes it.
 */
export async function setExhausted(
  db: Database,
  organizationId: string,
  at: number | null,
): Promise<boolean> {
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('billing_accounts')
    .values({
      organization_id: organizationId,
      ended_sandboxes: 0,
      vcpu_ms: '0',
      mem_mib_ms: '0',
      exhausted_at: at,
    })
    .onConflict((conflict) =>
      conflict
        .column('organization_id')
        .doUpdateSet({ exhausted_at: (row) => row.ref('excluded.exhausted_at') })
        .where(sql<boolean>`(billing_accounts.exhausted_at IS NULL) <> (excluded.exhausted_at IS NULL)`),
    )
    .executeTakeFirstOrThrow();
  return numInsertedOrUpdatedRows === 1n;
}
