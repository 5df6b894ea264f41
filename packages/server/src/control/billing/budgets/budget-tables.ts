export interface BudgetTable {
  organization_id: string;
  /** `organization` or the id of the team. */
  scope: string;
  /** Null for the budget of the organization. */
  team_id: string | null;
  month_cents: number;
  /** In ascending order. */
  alert_percents: number[];
  /** Unix milliseconds. */
  updated_at: number;
}

/** A part of a budget that the cost has reached. Its event was written in the same transaction. */
export interface BudgetAlertTable {
  organization_id: string;
  scope: string;
  /** For example 2026-11. */
  month: string;
  percent: number;
  /** Unix milliseconds. */
  reached_at: number;
}
