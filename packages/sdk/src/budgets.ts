import type { CallOptions } from './transport/client-options.ts';
import type { Transport } from './transport/transport.ts';
import {
  buildWireBody,
  encodeSegment,
  readArray,
  readNumber,
  readObject,
  readString,
  type WireObject,
} from './transport/wire.ts';

/** How much a calendar month in UTC may cost, and at which parts of it there is an event. */
export interface BudgetOptions {
  /** Cents for a month, sandboxes and disks together: a whole number. */
  monthCents: number;
  /** Parts of the budget at which there is an event, once in each month. Default: 50, 80 and 100. */
  alertPercents?: number[] | undefined;
}

/** A budget, with the cost of the current month. */
export interface Budget {
  /** `organization`, or the id of the team whose cost counts. */
  scope: string;
  monthCents: number;
  /** In ascending order. */
  alertPercents: number[];
  /** The current month in UTC, for example `2026-11`. */
  month: string;
  /** Cost of the current month up to now, in cents. */
  costCents: number;
  /** Parts of the budget whose event was in this month. */
  reachedPercents: number[];
  /** Time of the last change, ISO 8601 UTC. */
  updatedAt: string;
}

const BUDGET_FIELDS = {
  monthCents: 'month_cents',
  alertPercents: 'alert_percents',
} as const satisfies Record<keyof BudgetOptions, string>;

/**
 * Budgets of your organization and its teams. Available as `client.budgets`. A budget stops nothing: when the cost of a
 * month reaches a part of it, there is one event `budget.reached`, which webhooks deliver. Calls reject with
 * {@link CoppiceError}, and with `TypeError` for an empty scope or an unknown field.
 */
export class Budgets {
  readonly #transport: Transport;

  /** Called by {@link Coppice} only. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Lists the budgets: that of the organization, and those of its teams. A key that is limited to its team gets that of
   * the team.
   *
   * @example
   * for (const { scope, costCents, monthCents } of await client.budgets.list()) console.log(scope, costCents / monthCents);
   */
  async list(options: CallOptions = {}): Promise<Budget[]> {
    const answer = await this.#transport.callJson(
      { method: 'GET', path: '/v1/budgets', idempotent: true, signal: options.signal },
      (value) => readArray(value, 'the list of budgets', parseBudget),
    );
    return answer.value;
  }

  /**
   * Sets the budget of the organization (`scope` is `organization`) or of a team (its id). After a deletion, and
   * with another amount, the events of the current month begin anew.
   *
   * @example
   * await client.budgets.set('organization', { monthCents: 50_000, alertPercents: [80, 100] });
   */
  async set(scope: string, budget: BudgetOptions, options: CallOptions = {}): Promise<Budget> {
    const answer = await this.#transport.callJson(
      {
        method: 'PUT',
        path: budgetPath(scope),
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(buildWireBody(budget, BUDGET_FIELDS, 'budgets.set')),
        idempotent: true,
        signal: options.signal,
      },
      parseBudget,
    );
    return answer.value;
  }

  /**
   * Deletes a budget. Rejects with code `not_found` when there is none.
   *
   * @example
   * await client.budgets.delete('organization');
   */
  async delete(scope: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.callEmpty({
      method: 'DELETE',
      path: budgetPath(scope),
      idempotent: true,
      signal: options.signal,
    });
  }
}

function budgetPath(scope: string): string {
  return `/v1/budgets/${encodeSegment(scope, 'the scope')}`;
}

function parseBudget(value: unknown): Budget {
  const record = readObject(value, 'the budget');
  return {
    scope: readString(record, 'scope'),
    monthCents: readNumber(record, 'month_cents'),
    alertPercents: readPercents(record, 'alert_percents'),
    month: readString(record, 'month'),
    costCents: readNumber(record, 'cost_cents'),
    reachedPercents: readPercents(record, 'reached_percents'),
    updatedAt: readString(record, 'updated_at'),
  };
}

function readPercents(record: WireObject, field: string): number[] {
  return readArray(record[field], field, (percent) => readNumber({ [field]: percent }, field));
}
