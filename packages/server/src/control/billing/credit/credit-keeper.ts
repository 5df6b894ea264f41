/**
 * Checks every few seconds whether the organizations of running sandboxes still have credit. Each control does so for the sandboxes
 * of its runners; that credit is exhausted or restored is written by the first one that finds it.
 *
 *     left > 0 ──► left ≤ 0: exhausted_at is set ── grace ──► its running sandboxes are hibernated, a few at a time
 *        ▲                                                       │ a failed hibernation is retried
 *        └──────────── a grant clears exhausted_at ──────────────┘ nothing is destroyed; the user resumes sandboxes
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { Database } from '../../db/database.ts';
import type { LiveDrivers } from '../../sandbox/live/live-drivers.ts';
import type { SandboxDriver } from '../../sandbox/live/sandbox-driver.ts';
import { type Balance, type Credit } from './credit.ts';
import { insertEvent } from '../../events/insert-event.ts';
import { setExhausted } from './credit-store.ts';

/** Limit of hibernations at a time: each writes a guest's memory to disk. */
const MAX_HIBERNATIONS = 4;

export interface CreditKeeperParts {
  credit: Credit;
  db: Database;
  drivers: LiveDrivers;
  intervalMs: number;
  graceMs: number;
  /** Called when an event is committed. */
  onEvent: () => void;
  log: Logger;
}

export class CreditKeeper implements AsyncDisposable {
  readonly #parts: CreditKeeperParts;
  readonly #stop = new AbortController();
  readonly #hibernating = new Map<string, Promise<void>>();
  #loop: Promise<void> = Promise.resolve();

  constructor(parts: CreditKeeperParts) {
    this.#parts = parts;
  }

  start(): void {
    if (this.#parts.credit.isOn) this.#loop = this.#run();
  }

  /** Stops the checks. Hibernations that are under way continue: the drivers own them. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.#check().catch((error: unknown) =>
        this.#parts.log.warn({ err: error }, 'credit could not be checked; control tries again'),
      );
      await delay(this.#parts.intervalMs, undefined, { signal }).catch(() => undefined);
    }
  }

  async #check(): Promise<void> {
    const { drivers } = this.#parts;
    const running = drivers.list().filter(({ row }) => row.status === 'running');
    const organizationIds = [...new Set(running.map(({ row }) => row.organization_id))];
    if (organizationIds.length === 0) return;
    for (const balance of await this.#parts.credit.readBalances(organizationIds)) {
      const { organizationId } = balance.account;
      const isOver = await this.#noteExhausted(balance);
      if (isOver) this.#hibernate(drivers.listOf(organizationId));
    }
  }

  /** Stores whether credit is exhausted. Returns true if it is and the grace is over, too. */
  async #noteExhausted({ account, leftUnits, now }: Balance): Promise<boolean> {
    const { db, graceMs, log } = this.#parts;
    const { organizationId, exhaustedAt } = account;
    const isExhausted = leftUnits <= 0n;
    if (isExhausted !== (exhaustedAt !== null)) {
      const isNew = await db.transaction().execute(async (transaction) => {
        const at = isExhausted ? now.wallMs : null;
        if (!(await setExhausted(transaction, organizationId, at))) return false;
        const type = isExhausted ? 'credit.exhausted' : 'credit.restored';
        const of = { organizationId, teamId: null, at: now.wallMs };
        await insertEvent(transaction, { type, data: {}, ...of });
        return true;
      });
      if (isNew) {
        this.#parts.onEvent();
        log.info({ organization_id: organizationId, exhausted: isExhausted }, 'credit has changed');
      }
    }
    return isExhausted && now.wallMs - (exhaustedAt ?? now.wallMs) >= graceMs;
  }

  #hibernate(drivers: readonly SandboxDriver[]): void {
    for (const driver of drivers) {
      const { id, status } = driver.row;
      if (this.#hibernating.size >= MAX_HIBERNATIONS) return;
      if (status !== 'running' || driver.isBusy || this.#hibernating.has(id)) continue;
      const work = this.#hibernateOne(driver).finally(() => this.#hibernating.delete(id));
      this.#hibernating.set(id, work);
    }
  }

  async #hibernateOne(driver: SandboxDriver): Promise<void> {
    const log = this.#parts.log.child({ sandbox_id: driver.row.id });
    try {
      await driver.hibernation.hibernate();
      log.info('hibernated, as the credit of its organization is used up');
    } catch (error) {
      log.warn({ err: error }, 'a sandbox without credit could not be hibernated; control tries again');
    }
  }
}
