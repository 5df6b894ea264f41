/**
 * Lists organizations for an operator and sets their credit and limits. A running service applies changes within
 * seconds.
 */
import { AppError, OPERATOR_ACTOR } from '@coppice/contract';
import { sql, type Insertable } from 'kysely';
import type { HostMoment } from '../../lib/host-clock.ts';
import type { OrganizationAudit } from '../audit/organization/organization-audit.ts';
import { readAccounts } from '../billing/consumption/billing-accounts.ts';
import { findCreditWithWelcome, findSpent } from '../billing/credit/credit-balance.ts';
import { grantCredit } from '../billing/credit/credit-store.ts';
import type { OrganizationLimitsTable } from '../billing/billing-tables.ts';
import type { Database } from '../db/database.ts';
import { LIMIT_NAMES, type OwnLimits } from '../limits/own-limits.ts';

export interface OrganizationSummary {
  id: string;
  name: string;
  region: string;
  /** Unix milliseconds. */
  createdAt: number;
  /** Creating, running or hibernated. */
  sandboxes: number;
  /** The organization's whole cost so far, in cost units. */
  spentUnits: bigint;
  /** In cost units; undefined if credit is off. */
  creditLeftUnits: bigint | undefined;
  limits: OwnLimits;
}

export interface ListOptions {
  now: HostMoment;
  /** Credit that every organization gets at first, in cents; undefined if credit is off. */
  welcomeCents: number | undefined;
  /** A part of the list; all of it without one. */
  page?: SummaryPage;
}

interface SummaryPage {
  limit: number;
  /** The last organization of the part before. */
  after?: { createdAt: number; id: string } | undefined;
}

/** Lists organizations, earliest first. */
export async function listOrganizations(
  db: Database,
  { now, welcomeCents, page }: ListOptions,
): Promise<OrganizationSummary[]> {
  const after = page?.after;
  const rows = await db
    .selectFrom('organizations')
    .leftJoin('organization_limits', 'organization_limits.organization_id', 'organizations.id')
    .select(['id', 'name', 'region', 'created_at', ...LIMIT_NAMES])
    .$if(after !== undefined, (query) =>
      query.where(sql<boolean>`(created_at, id) > (${after?.createdAt}, ${after?.id})`),
    )
    .orderBy('created_at')
    .orderBy('id')
    .$if(page !== undefined, (query) => query.limit(page?.limit ?? 0))
    .execute();
  const accounts = await readAccounts(
    db,
    rows.map(({ id }) => id),
  );
  const accountOf = new Map(accounts.map((account) => [account.organizationId, account]));
  return rows.flatMap(({ id, name, region, created_at: createdAt, ...limits }) => {
    const account = accountOf.get(id);
    if (account === undefined) return [];
    const spentUnits = findSpent(account, now);
    const creditLeftUnits =
      welcomeCents === undefined ? undefined : findCreditWithWelcome(account, now, welcomeCents);
    const sandboxes = account.live.length;
    return [{ id, name, region, createdAt, sandboxes, spentUnits, creditLeftUnits, limits }];
  });
}

/** The parts that a change by the operator needs. */
export interface Desk {
  db: Database;
  audit: OrganizationAudit;
}

/** Grants credit; a negative amount takes some back. Throws `not_found`. */
export async function grantByOperator(
  { db, audit }: Desk,
  grant: { organizationId: string; cents: number; note: string },
): Promise<void> {
  const { organizationId, cents } = grant;
  await requireOrganization(db, organizationId);
  await db.transaction().execute(async (transaction) => {
    await grantCredit(transaction, grant);
    // Without the operator's note, which tenants see nowhere else.
    const notes = [{ event: 'credit.granted' as const, data: { cents } }];
    await audit.write(transaction, { organizationId, by: OPERATOR_ACTOR, notes });
  });
}

/** Changes only the limits that are named. Throws `not_found`. */
export async function setLimits(
  { db, audit }: Desk,
  organizationId: string,
  change: Partial<OwnLimits>,
): Promise<void> {
  await requireOrganization(db, organizationId);
  const unset = Object.fromEntries(LIMIT_NAMES.map((name) => [name, null])) as OwnLimits;
  const row: Insertable<OrganizationLimitsTable> = { organization_id: organizationId, ...unset, ...change };
  await db.transaction().execute(async (transaction) => {
    await transaction
      .insertInto('organization_limits')
      .values(row)
      .onConflict((conflict) => conflict.column('organization_id').doUpdateSet(change))
      .execute();
    const notes = [{ event: 'limits.changed' as const, data: { ...change } }];
    await audit.write(transaction, { organizationId, by: OPERATOR_ACTOR, notes });
  });
}

async function requireOrganization(db: Database, id: string): Promise<void> {
  const found = await db.selectFrom('organizations').select('id').where('id', '=', id).executeTakeFirst();
  if (found === undefined)
    throw new AppError(
      'not_found',
      `there is no organization "${id}"; coppice admin organization list shows them`,
    );
}
