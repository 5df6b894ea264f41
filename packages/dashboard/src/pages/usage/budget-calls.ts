/** Calls about budgets as code. */
import type { BudgetOptions } from '../../../../sdk/src/index.ts';
import { toLiteral, toPython, toPythonArguments, type writeSnippet } from '../../ui/snippets.ts';

type Call = Parameters<typeof writeSnippet>[0];

export const LIST_BUDGETS: Call = {
  method: 'GET',
  path: '/v1/budgets',
  typescript:
    'for (const { scope, costCents, monthCents } of await client.budgets.list()) console.log(scope, costCents, monthCents);',
  python:
    'for budget in client.budgets.list():\n    print(budget.scope, budget.cost_cents, budget.month_cents)',
};

export function setBudgetCall(scope: string, { monthCents, alertPercents }: BudgetOptions): Call {
  const body = { month_cents: monthCents, alert_percents: alertPercents };
  return {
    method: 'PUT',
    path: budgetPath(scope),
    body,
    typescript: `await client.budgets.set(${toLiteral(scope)}, ${toLiteral({ monthCents, alertPercents })});`,
    python: `client.budgets.set(${toPython(scope)}, ${toPythonArguments(body)})`,
  };
}

export function deleteBudgetCall(scope: string): Call {
  return {
    method: 'DELETE',
    path: budgetPath(scope),
    typescript: `await client.budgets.delete(${toLiteral(scope)});`,
    python: `client.budgets.delete(${toPython(scope)})`,
  };
}

function budgetPath(scope: string): string {
  return `/v1/budgets/${encodeURIComponent(scope)}`;
}
