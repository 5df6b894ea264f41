/** Budgets and their alerts in SQL. */
import { sql } from 'kysely';
import type { Reach } from '../../accounts/organizations/reach.ts';
import type { Database } from '../../db/database.ts';
import type { BudgetTable } from './budget-tables.ts';

export type BudgetRow = BudgetTable;

export interface BudgetOfMonth extends BudgetRow {
  /** Percentages whose event was in the month, in ascending order. */
  reached: number[];
}

export interface BudgetAlert {
  budget: Pick<BudgetRow, 'organization_id' | 'scope' | 'month_cents'>;
  month: string;
  percent: number;
  /** Unix milliseconds. */
  at: number;
}

export class BudgetStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  within(transaction: Database): BudgetStore {
    return new BudgetStore(transaction);
  }

  /** Lists the budgets in a reach: first that of the organization, then those of its teams. */
  list({ organizationId, onlyTeamId }: Reach, month: string): Promise<BudgetOfMonth[]> {
    const ofMonth = this.#select(month).where('organization_id', '=', organizationId);
    return (onlyTeamId === null ? ofMonth : ofMonth.where('team_id', '=', onlyTeamId)).execute();
  }

  /** Lists the budgets that can still be reached in a month, of all organizations or of some. */
  listQuiet(month: string, organizationIds?: readonly string[]): Promise<BudgetOfMonth[]> {
    return this.#select(month)
      .$if(organizationIds !== undefined, (query) =>
        query.where('organization_id', 'in', [...(organizationIds ?? [])]),
      )
      .where(
        sql<boolean>`EXISTS (
          SELECT FROM unnest(budgets.alert_percents) AS wanted (percent) WHERE NOT EXISTS (
            SELECT FROM budget_alerts WHERE organization_id = budgets.organization_id AND scope = budgets.scope
              AND month = ${month} AND budget_alerts.percent = wanted.percent))`,
      )
      .execute();
  }

  #select(month: string) {
    return this.#db
      .selectFrom('budgets')
      .selectAll()
      .select(
        sql<number[]>`ARRAY(
          SELECT percent FROM budget_alerts WHERE organization_id = budgets.organization_id
            AND scope = budgets.scope AND month = ${month} AND percent = ANY(budgets.alert_percents)
          ORDER BY percent)`.as('reached'),
      )
      .orderBy(sql`team_id IS NOT NULL`)
      .orderBy('organization_id')
      .orderBy('scope');
  }

  /** Inserts or replaces. Another amount is another budget: its alerts of `month` are forgotten. */
  async put(row: BudgetRow, month: string): Promise<void> {
    const { organization_id, scope, month_cents, alert_percents, updated_at } = row;
    const before = await this.#db
      .selectFrom('budgets')
      .select('month_cents')
      .where('organization_id', '=', organization_id)
      .where('scope', '=', scope)
      .forUpdate()
      .executeTakeFirst();
    if (before !== undefined && before.month_cents !== month_cents)
      await this.#db
        .deleteFrom('budget_alerts')
        .where('organization_id', '=', organization_id)
        .where('scope', '=', scope)
        .where('month', '=', month)
        .execute();
    await this.#db
      .insertInto('budgets')
      .values(row)
      .onConflict((conflict) =>
        conflict
          .columns(['organization_id', 'scope'])
          .doUpdateSet({ month_cents, alert_percents, updated_at }),
      )
      .execute();
  }

  /** Returns false if there was nothing to remove. */
  async remove(organizationId: string, scope: string): Promise<boolean> {
    const removed = await this.#db
      .deleteFrom('budgets')
      .where('organization_id', '=', organizationId)
      .where('scope', '=', scope)
      .executeTakeFirst();
    return removed.numDeletedRows > 0n;
  }

  /**
   * Inserts an alert, unless there is one, or the budget is no longer what it was. Returns whether it did: the caller writes
   * the event in the same transaction.
   */
  async insertAlert({ budget, month, percent, at }: BudgetAlert): Promise<boolean> {
    const { organization_id, scope, month_cents } = budget;
    const { numAffectedRows } = await sql`
      INSERT INTO budget_alerts (organization_id, scope, month, percent, reached_at)
      SELECT organization_id, scope, ${month}, ${percent}, ${at} FROM budgets
      WHERE organization_id = ${organization_id} AND scope = ${scope} AND month_cents = ${month_cents}
        AND ${percent} = ANY(alert_percents)
      FOR SHARE
      ON CONFLICT DO NOTHING`.execute(this.#db);
    return numAffectedRows === 1n;
  }

  /** Returns whether the organization has this team. */
  async hasTeam(organizationId: string, teamId: string): Promise<boolean> {
    const team = await this.#db
      .selectFrom('teams')
      .select('id')
      .where('organization_id', '=', organizationId)
      .where('id', '=', teamId)
      .executeTakeFirst();
    return team !== undefined;
  }
}
