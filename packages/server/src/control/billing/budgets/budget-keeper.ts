/**
 * Compares budgets with the costs of the current month, every few seconds and after each change of a budget. Each
 * percentage that is reached becomes one event in the month: the row of the alert and the event are one transaction.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { HostMoment } from '../../../lib/host-clock.ts';
import type { Database } from '../../db/database.ts';
import { insertEvent } from '../../events/insert-event.ts';
import { momentOf, type Clock } from '../../time/clock.ts';
import type { Month } from '../statement/month.ts';
import { BudgetStore, type BudgetOfMonth } from './budget-store.ts';
import { monthAt, readMonthCosts } from './month-costs.ts';

export interface BudgetKeeperParts {
  db: Database;
  clock: Clock;
  intervalMs: number;
  /** Called when an event is committed. */
  onEvent: () => void;
  log: Logger;
}

export class BudgetKeeper implements AsyncDisposable {
  readonly #parts: BudgetKeeperParts;
  readonly #store: BudgetStore;
  readonly #stop = new AbortController();
  #pause = new AbortController();
  #loop: Promise<void> = Promise.resolve();

  constructor(parts: BudgetKeeperParts) {
    this.#parts = parts;
    this.#store = new BudgetStore(parts.db);
  }

  start(): void {
    this.#loop = this.#run();
  }

  /** Compares soon. */
  wake(): void {
    this.#pause.abort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      this.#pause = new AbortController();
      const signal = AbortSignal.any([this.#stop.signal, this.#pause.signal]);
      await this.#check().catch((error: unknown) =>
        this.#parts.log.warn({ err: error }, 'budgets could not be checked; control tries again'),
      );
      await delay(this.#parts.intervalMs, undefined, { signal }).catch(() => undefined);
    }
  }

  async #check(): Promise<void> {
    const now = momentOf(this.#parts.clock);
    const month = monthAt(now.wallMs);
    const budgets = await this.#store.listQuiet(month.name);
    for (const ofOne of Map.groupBy(budgets, (budget) => budget.organization_id).values())
      await this.#checkOrganization(ofOne, { month, now });
  }

  async #checkOrganization(
    budgets: readonly BudgetOfMonth[],
    moment: { month: Month; now: HostMoment },
  ): Promise<void> {
    const [{ organization_id: organizationId } = { organization_id: '' }] = budgets;
    const costOf = await readMonthCosts(this.#parts.db, { organizationId, onlyTeamId: null }, moment);
    for (const budget of budgets) {
      const cost = costOf(budget.team_id);
      const isReached = (percent: number): boolean => cost * 100 >= budget.month_cents * percent;
      for (const percent of budget.alert_percents)
        if (isReached(percent) && !budget.reached.includes(percent))
          await this.#alert(budget, { ...moment, percent, cost });
    }
  }

  async #alert(
    budget: BudgetOfMonth,
    { month, now, percent, cost }: { month: Month; now: HostMoment; percent: number; cost: number },
  ): Promise<void> {
    const { organization_id: organizationId, team_id: teamId, scope, month_cents } = budget;
    const at = Math.floor(now.wallMs);
    const isNew = await this.#parts.db.transaction().execute(async (transaction) => {
      const alert = { budget, month: month.name, percent, at };
      if (!(await this.#store.within(transaction).insertAlert(alert))) return false;
      const data = { scope, month: month.name, percent, cost_cents: cost, month_cents };
      await insertEvent(transaction, { type: 'budget.reached', data, at, organizationId, teamId });
      return true;
    });
    if (!isNew) return;
    this.#parts.onEvent();
    this.#parts.log.info({ organization_id: organizationId, scope, percent }, 'a budget was reached');
  }
}
