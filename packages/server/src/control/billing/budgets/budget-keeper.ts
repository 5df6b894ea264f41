/**
 * Compares budgets with the costs of the month: all of them every few seconds, by the control that leads, and those of one
 * organization after a change, by the control that has made it. Each percentage that is reached becomes one event in the month,
 * however many controls find it: the row of the alert and the event are one transaction.
 */
import type { Logger } from 'pino';
import type { HostMoment } from '../../../lib/host-clock.ts';
import { WakeSignal } from '../../../lib/waiting/wake-signal.ts';
import type { Database } from '../../db/database.ts';
import { insertEvent } from '../../events/insert-event.ts';
import type { Leadership } from '../../ownership/leadership.ts';
import { momentOf, type Clock } from '../../time/clock.ts';
import { monthAt, type Month } from '../months/month.ts';
import { BudgetStore, type BudgetOfMonth } from './budget-store.ts';
import { readMonthCosts } from './month-costs.ts';

/** For this long after a month its budgets are still compared: its last costs, and those of an outage of the service. */
const LATE_MS = 24 * 3_600_000;
/** Long comparisons are rare: the pause is at least this many times as long. */
const PAUSE_FACTOR = 10;

export interface BudgetKeeperParts {
  db: Database;
  leadership: Leadership;
  clock: Clock;
  intervalMs: number;
  /** Called when an event is committed. */
  onEvent: () => void;
  log: Logger;
}

interface Comparison {
  month: Month;
  now: HostMoment;
}

export class BudgetKeeper implements AsyncDisposable {
  readonly #parts: BudgetKeeperParts;
  readonly #store: BudgetStore;
  readonly #stop = new AbortController();
  /** Organizations whose budgets were changed. */
  readonly #changed = new Set<string>();
  readonly #news = new WakeSignal();
  #loop: Promise<void> = Promise.resolve();

  constructor(parts: BudgetKeeperParts) {
    this.#parts = parts;
    this.#store = new BudgetStore(parts.db);
  }

  start(): void {
    this.#loop = this.#run();
  }

  /** Compares the budgets of an organization soon. */
  wake(organizationId: string): void {
    this.#changed.add(organizationId);
    this.#news.wake();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    let dueAt = 0;
    while (!signal.aborted) {
      this.#news.reset();
      const beganAt = performance.now();
      const isDue = beganAt >= dueAt;
      const changed = [...this.#changed];
      this.#changed.clear();
      await this.#check(isDue && this.#parts.leadership.isLeading ? undefined : changed).catch(
        (error: unknown) =>
          this.#parts.log.warn({ err: error }, 'budgets could not be checked; control tries again'),
      );
      const endedAt = performance.now();
      if (isDue) dueAt = endedAt + Math.max(this.#parts.intervalMs, PAUSE_FACTOR * (endedAt - beganAt));
      await this.#news.pause(Math.max(0, dueAt - endedAt), signal);
    }
  }

  /** Compares the budgets of some organizations, or of all. */
  async #check(organizationIds: readonly string[] | undefined): Promise<void> {
    if (organizationIds?.length === 0) return;
    const now = momentOf(this.#parts.clock);
    const month = monthAt(now.wallMs);
    const isEarly = now.wallMs - month.from < LATE_MS;
    for (const compared of isEarly ? [monthAt(month.from - 1), month] : [month])
      await this.#compare({ month: compared, now }, organizationIds);
  }

  async #compare(comparison: Comparison, organizationIds: readonly string[] | undefined): Promise<void> {
    const { month } = comparison;
    const quiet = await this.#store.listQuiet(month.name, organizationIds);
    // A budget that was set after the month says nothing about it.
    const budgets = quiet.filter(({ updated_at: setAt }) => setAt < month.to);
    for (const [organizationId, own] of Map.groupBy(budgets, (budget) => budget.organization_id)) {
      if (this.#stop.signal.aborted) return;
      await this.#compareOne(organizationId, own, comparison).catch((error: unknown) =>
        this.#parts.log.warn(
          { err: error, organization_id: organizationId },
          'the budgets of an organization could not be checked; control tries again',
        ),
      );
    }
  }

  async #compareOne(
    organizationId: string,
    budgets: readonly BudgetOfMonth[],
    comparison: Comparison,
  ): Promise<void> {
    const costOf = await readMonthCosts(this.#parts.db, { organizationId, onlyTeamId: null }, comparison);
    for (const budget of budgets) {
      const cost = costOf(budget.team_id);
      const isReached = (percent: number): boolean => cost >= (budget.month_cents * percent) / 100;
      for (const percent of budget.alert_percents)
        if (isReached(percent) && !budget.reached.includes(percent))
          await this.#alert(budget, { ...comparison, percent, cost });
    }
  }

  async #alert(
    budget: BudgetOfMonth,
    { month, now, percent, cost }: Comparison & { percent: number; cost: number },
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
