/**
 * Wire forms of budgets. A budget never stops anything: it says, once in a month for each of its percentages, that the
 * cost has reached it (the event `budget.reached`). Only credit and limits stop sandboxes.
 */
import { z } from 'zod';
import { boundedInt, Timestamp } from '../fields.ts';

/** One billion dollars. */
const MAX_MONTH_CENTS = 100_000_000_000;
const MAX_PERCENT = 1000;
const MAX_PERCENTS = 10;
const DEFAULT_PERCENTS = [50, 80, 100];

/** The budget of the organization; that of a team is named by the team's id. */
export const ORGANIZATION_BUDGET = 'organization';

const PERCENTS_ERROR = `must be an array of 1 to ${MAX_PERCENTS} whole numbers from 1 to ${MAX_PERCENT}`;

/** Body of `PUT /v1/budgets/{scope}`. */
export const PutBudgetRequest = z
  .strictObject({
    month_cents: boundedInt(1, MAX_MONTH_CENTS, 'cents').describe(
      'What a calendar month in UTC may cost, sandboxes and disks together.',
    ),
    alert_percents: z
      .array(boundedInt(1, MAX_PERCENT, 'percent'), { error: PERCENTS_ERROR })
      .min(1, { error: PERCENTS_ERROR })
      .max(MAX_PERCENTS, { error: PERCENTS_ERROR })
      .transform((percents) => [...new Set(percents)].toSorted((a, b) => a - b))
      .default(DEFAULT_PERCENTS)
      .describe('Parts of the budget at which there is an event, once in each month.'),
  })
  .meta({ id: 'PutBudgetRequest' });
export type PutBudgetRequest = z.infer<typeof PutBudgetRequest>;

export const BudgetRecord = z
  .object({
    scope: z.string().describe('`organization`, or the id of the team whose cost counts.'),
    month_cents: z.int(),
    alert_percents: z.array(z.int()).describe('In ascending order.'),
    month: z.string().describe('The current month in UTC.').meta({ example: '2026-11' }),
    cost_cents: z.number().describe('Cost of the current month up to now; fractions are normal.'),
    reached_percents: z.array(z.int()).describe('Those whose event was in this month.'),
    updated_at: Timestamp,
  })
  .meta({ id: 'Budget' });
export type BudgetRecord = z.infer<typeof BudgetRecord>;
