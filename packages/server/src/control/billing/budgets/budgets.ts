/** The budgets of each organization and its teams, as callers see and change them. BudgetKeeper watches them. */
import { AppError, ORGANIZATION_BUDGET, type BudgetRecord, type PutBudgetRequest } from '@coppice/contract';
import type { Reach } from '../../accounts/organizations/reach.ts';
import type { Change, OrganizationAudit } from '../../audit/organization/organization-audit.ts';
import type { Database } from '../../db/database.ts';
import { momentOf, type Clock } from '../../time/clock.ts';
import { monthAt } from '../months/month.ts';
import { BudgetStore, type BudgetOfMonth } from './budget-store.ts';
import { readMonthCosts } from './month-costs.ts';

export interface BudgetsParts {
  db: Database;
  clock: Clock;
  audit: OrganizationAudit;
  /** Called when a budget of the organization was changed: it may be reached already. */
  onChange: (organizationId: string) => void;
}

export class Budgets {
  readonly #parts: BudgetsParts;
  readonly #store: BudgetStore;

  constructor(parts: BudgetsParts) {
    this.#parts = parts;
    this.#store = new BudgetStore(parts.db);
  }

  async list(reach: Reach): Promise<BudgetRecord[]> {
    const { db, clock } = this.#parts;
    const now = momentOf(clock);
    const month = monthAt(now.wallMs);
    const budgets = await this.#store.list(reach, month.name);
    if (budgets.length === 0) return [];
    const costOf = await readMonthCosts(db, reach, { month, now });
    return budgets.map((budget) => buildBudgetRecord(budget, month.name, costOf(budget.team_id)));
  }

  /** Throws `not_found` for a team that the organization does not have. */
  async put(change: Change, scope: string, request: PutBudgetRequest): Promise<BudgetRecord> {
    const { db, clock, audit } = this.#parts;
    const { organizationId } = change;
    const now = momentOf(clock);
    const month = monthAt(now.wallMs);
    const teamId = scope === ORGANIZATION_BUDGET ? null : scope;
    const row = {
      organization_id: organizationId,
      scope,
      team_id: teamId,
      ...request,
      updated_at: Math.floor(now.wallMs),
    };
    await audit.commit(db, change, async (transaction) => {
      const store = this.#store.within(transaction);
      if (teamId !== null && !(await store.hasTeam(organizationId, teamId))) throw noTeam(teamId);
      await store.put(row, month.name);
      return { result: undefined, notes: [{ event: 'budget.set', data: { scope, ...request } }] };
    });
    this.#parts.onChange(organizationId);
    const stored = (await this.list({ organizationId, onlyTeamId: teamId })).find(
      (one) => one.scope === scope,
    );
    if (stored === undefined) throw noBudget(scope);
    return stored;
  }

  async remove(change: Change, scope: string): Promise<void> {
    const isRemoved = await this.#parts.audit.commit(this.#parts.db, change, async (transaction) => {
      const result = await this.#store.within(transaction).remove(change.organizationId, scope);
      return { result, notes: result ? [{ event: 'budget.deleted', data: { scope } }] : [] };
    });
    if (!isRemoved) throw noBudget(scope);
  }
}

function buildBudgetRecord(budget: BudgetOfMonth, month: string, costCents: number): BudgetRecord {
  const { scope, month_cents, alert_percents, reached, updated_at } = budget;
  return {
    scope,
    month_cents,
    alert_percents,
    month,
    cost_cents: costCents,
    reached_percents: reached,
    updated_at: new Date(updated_at).toISOString(),
  };
}

function noTeam(teamId: string): AppError {
  const message = `scope: the organization has no team ${JSON.stringify(teamId)}; give the id of a team, or "${ORGANIZATION_BUDGET}"`;
  return new AppError('not_found', message);
}

function noBudget(scope: string): AppError {
  return new AppError('not_found', `there is no budget for ${JSON.stringify(scope)}`);
}
