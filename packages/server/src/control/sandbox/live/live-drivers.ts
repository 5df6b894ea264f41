/**
 * Registry of the drivers of the live sandboxes on this control's runners, of every organization: one for each, from its
 * insert to its end.
 */
import { isWithin, type Reach } from '../../accounts/organizations/reach.ts';
import type { TeamSecrets } from '../../audit/team-secrets.ts';
import type { Credit } from '../../billing/credit/credit.ts';
import { isDatabaseAway } from '../../db/database-error.ts';
import type { TakeDisks } from '../../disks/sandbox-disks.ts';
import type { NewSandboxRow, SandboxRow } from '../record/sandbox-tables.ts';
import type { LimitsOf } from '../../limits/organization-limits.ts';
import { checkQuota, checkResume, type Held, type Shape } from '../../limits/quota.ts';
import { Grouped } from '../record/grouped.ts';
import type { Move, OwnedEnd, Stay } from '../record/moves.ts';
import type { Admit, SandboxStore } from '../record/sandbox-store.ts';
import type { RunnerClient } from '../../placement/runner-client.ts';
import type { OwnedRunner } from '../../runners/owned-runner.ts';
import type { Runners } from '../../runners/runners.ts';
import { SandboxDriver, type DriverParts } from './sandbox-driver.ts';
import type { SandboxMoves } from './sandbox-moves.ts';
import { invariant } from '../../../lib/invariant.ts';
import { traced } from '../../../lib/tracing/tracing.ts';

export interface LiveDriversParts extends Omit<DriverParts, 'runner' | 'onFinal' | 'onGone' | 'moves'> {
  runners: Pick<Runners, 'get' | 'find'>;
  /** Id of this control. */
  control: string;
  /** Called before sandboxes are adopted that another control has had. */
  beforeAdopt: () => Promise<void>;
  /** New sandboxes use the newest secret of their team. */
  teamSecrets: Pick<TeamSecrets, 'ensure'>;
  /** Called when the end of a sandbox is committed. */
  onEnded: () => void;
  /** Called with the id of a sandbox that another control is about to have. */
  onUnloaded: (id: string) => void;
  credit: Credit;
  limitsOf: LimitsOf;
}

export class LiveDrivers implements Disposable {
  readonly #parts: LiveDriversParts;
  readonly #drivers = new Grouped<SandboxDriver>();
  readonly #byRunner = new Grouped<SandboxDriver>();
  readonly #inserts: PendingInserts;

  constructor(parts: LiveDriversParts) {
    this.#parts = parts;
    this.#inserts = new PendingInserts(parts.store);
  }

  /** Adopts the sandboxes of a runner that are live according to their records. Call when this control has just got it. */
  async load(runnerId: string): Promise<void> {
    await this.#parts.store.forgetMarks(runnerId);
    await this.adopt(runnerId);
  }

  /** Adopts those sandboxes of a runner that have no driver yet. */
  async adopt(runnerId: string): Promise<void> {
    const runner = this.#parts.runners.get(runnerId);
    for (const row of await this.#parts.store.listAlive(runnerId))
      if (this.#drivers.get(row.id) === undefined && !this.#inserts.has(row.id))
        this.#add(row, runner).live.adopt();
  }

  /** Adopts hibernated sandboxes that other controls have given to a runner, and whose drivers are missing. */
  async adoptMoved(runnerId: string): Promise<void> {
    const { store } = this.#parts;
    if ((await store.countAlive(runnerId)) <= this.listAt(runnerId).length) return;
    for (const id of await store.listHibernated(runnerId)) {
      const row = this.#drivers.get(id) === undefined ? await store.findById(id) : undefined;
      if (row !== undefined) await this.take(row);
    }
  }

  /**
   * Returns the driver of a hibernated sandbox that another control has given to a runner of this one; undefined for others, and
   * while its runner is about to get another owner, which then has the driver.
   */
  async take(row: SandboxRow): Promise<SandboxDriver | undefined> {
    if (row.status !== 'hibernated' || this.#findStaying(row) === undefined) return undefined;
    await this.#parts.beforeAdopt();
    const there = this.#drivers.get(row.id);
    const runner = this.#findStaying(row);
    if (there !== undefined || runner === undefined) return there;
    const driver = this.#add(row, runner);
    driver.live.adopt();
    this.#parts.log.info({ sandbox_id: row.id, runner_id: runner.id }, 'a hibernated sandbox was taken over');
    return driver;
  }

  /** Forgets the sandboxes of a runner that this control no longer reaches as before. They are as SQL has them. */
  unload(runnerId: string): void {
    for (const driver of this.listAt(runnerId)) {
      const { id, organization_id } = driver.row;
      driver.live.detach();
      this.#parts.onUnloaded(id);
      this.#drivers.delete(organization_id, id);
      this.#byRunner.delete(runnerId, id);
    }
  }

  /** Stops the timers of the sandboxes, which keep running. */
  [Symbol.dispose](): void {
    for (const driver of this.#drivers.list()) driver.live.detach();
  }

  /** Returns the drivers of every organization. */
  list(): SandboxDriver[] {
    return this.#drivers.list();
  }

  listOf(organizationId: string): SandboxDriver[] {
    return this.#drivers.listOf(organizationId);
  }

  listAt(runnerId: string): SandboxDriver[] {
    return this.#byRunner.listOf(runnerId);
  }

  /**
   * Ends the sandboxes of a runner whose VMs are lost. Those that are hibernated stay: their captures may be elsewhere.
   * Throws if an end could not be recorded.
   */
  async loseAll(runnerId: string): Promise<void> {
    const running = this.listAt(runnerId).filter(({ row }) => row.status !== 'hibernated');
    const ends = await Promise.allSettled(running.map((driver) => driver.lose()));
    const failed = ends.find((end) => end.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  }

  find(id: string): SandboxDriver | undefined {
    return this.#drivers.get(id);
  }

  /** Returns the runner of a live sandbox. Throws `unavailable` if it is not one of this control's. */
  runnerOf(id: string): RunnerClient {
    const driver = this.#drivers.get(id);
    return driver?.runner ?? this.#parts.runners.get(null).client;
  }

  /** Returns undefined if the sandbox is out of reach. */
  findWithin(reach: Reach, id: string): SandboxDriver | undefined {
    const driver = this.#drivers.get(id);
    return driver !== undefined && isWithin(reach, driver.row) ? driver : undefined;
  }

  async insert(row: NewSandboxRow, takeDisks?: TakeDisks): Promise<SandboxDriver> {
    const [driver] = await this.insertAll([row], takeDisks);
    invariant(driver, 'an inserted record has a driver');
    return driver;
  }

  /**
   * Inserts all rows or none, and takes their disks. They belong to one team. Returns the drivers in the order of the
   * rows. Throws `capacity` beyond the quota.
   */
  insertAll(rows: readonly NewSandboxRow[], takeDisks?: TakeDisks): Promise<SandboxDriver[]> {
    return traced('sandbox.insert', () => this.#insertAll(rows, takeDisks));
  }

  async #insertAll(rows: readonly NewSandboxRow[], takeDisks?: TakeDisks): Promise<SandboxDriver[]> {
    const [first] = rows;
    if (first === undefined) return [];
    // Before anything is written: it may belong to another control by then.
    const runner = this.#parts.runners.get(first.runner_id ?? null);
    const { id: audit_key_id } = await this.#parts.teamSecrets.ensure(first.team_id);
    const keyed = rows.map((row) => ({ ...row, audit_key_id }));
    const limits = this.#parts.limitsOf(first.organization_id);
    const admit = (held: Held): void => checkQuota(limits, held, rows);
    const made = await this.#inserts.insert(keyed, admit, takeDisks);
    const inserted = new Map(made.map((row) => [row.id, row]));
    return rows.flatMap(({ id }) => {
      const row = inserted.get(id);
      return row === undefined ? [] : [this.#add(row, runner)];
    });
  }

  /** Adopts records whose insert was made although its answer was lost. Their creates are interrupted. */
  recoverInserts(): Promise<void> {
    return this.#inserts.resolve((row) => {
      const runner = this.#parts.runners.find(row.runner_id ?? '');
      // Another control adopts it with its runner.
      if (runner !== undefined) this.#add(row, runner);
    });
  }

  /** Throws `capacity` if the organization may not have these in addition. The insert decides between concurrent creates. */
  async checkQuota(organizationId: string, more: readonly Shape[]): Promise<void> {
    const held = await this.#parts.store.readHeld(organizationId);
    checkQuota(this.#parts.limitsOf(organizationId), held, more);
  }

  /** Throws `credit_exhausted` or `capacity` if a sandbox may not resume now. From then on it counts as one that runs. */
  async #reserveResume(row: SandboxRow, move: Move | Stay): Promise<SandboxRow> {
    const { credit, store, limitsOf } = this.#parts;
    await credit.require(row.organization_id);
    const limits = limitsOf(row.organization_id);
    const admit = (held: Held): void => {
      // One whose resume has failed without an answer is counted already.
      if (row.is_resuming) checkQuota(limits, held, []);
      else checkResume(limits, held, row);
    };
    return store.reserveResume(row, admit, move);
  }

  #findStaying({ runner_id: at }: SandboxRow): OwnedRunner | undefined {
    const runner = this.#parts.runners.find(at ?? '');
    return runner?.isLeaving === true ? undefined : runner;
  }

  #add(row: SandboxRow, runner: OwnedRunner): SandboxDriver {
    const onGone = (): void => this.#forget(driver);
    const onFinal = (): void => {
      this.#forget(driver);
      this.#parts.onEnded();
    };
    const { control, store } = this.#parts;
    const moves: SandboxMoves = {
      reserve: (from, ends) =>
        this.#reserveResume(
          from,
          ends.from === ends.to
            ? { kind: 'stay', control, at: endOf(ends.to) }
            : { kind: 'resume', control, from: endOf(ends.from), to: endOf(ends.to) },
        ),
      handOver: (from, ends) =>
        store.move(from, { kind: 'hand over', control, from: endOf(ends.from), to: ends.to }),
      follow: (to) => this.#follow(driver, to),
    };
    const driver = new SandboxDriver(row, { ...this.#parts, runner, onFinal, onGone, moves });
    this.#drivers.set(row.organization_id, row.id, driver);
    this.#byRunner.set(runner.id, row.id, driver);
    return driver;
  }

  /** Does nothing after an unload: there may be another driver. */
  #forget(driver: SandboxDriver): void {
    const { id, organization_id } = driver.row;
    if (this.#drivers.get(id) !== driver) return;
    this.#drivers.delete(organization_id, id);
    this.#byRunner.delete(driver.home.id, id);
  }

  #follow(driver: SandboxDriver, to: OwnedRunner): void {
    const { id } = driver.row;
    if (this.#drivers.get(id) === driver) {
      this.#byRunner.delete(driver.home.id, id);
      this.#byRunner.set(to.id, id, driver);
    }
    driver.moveTo(to);
  }
}

function endOf({ id, client }: OwnedRunner): OwnedEnd {
  return { id, epoch: client.epoch };
}

interface Pending {
  id: string;
  organizationId: string;
  isInDoubt: boolean;
}

/** Records that are being inserted. A record whose insert got no answer stays here until it is known whether it exists. */
export class PendingInserts {
  readonly #store: SandboxStore;
  readonly #pending = new Grouped<Pending>();

  constructor(store: SandboxStore) {
    this.#store = store;
  }

  /** Inserts all of them or none. */
  async insert(rows: readonly NewSandboxRow[], admit: Admit, takeDisks?: TakeDisks): Promise<SandboxRow[]> {
    for (const row of rows) this.#note(row, false);
    let isInDoubt = false;
    try {
      return await this.#store.insert(rows, admit, takeDisks);
    } catch (error) {
      isInDoubt = isDatabaseAway(error);
      throw error;
    } finally {
      for (const row of rows) {
        if (isInDoubt) this.#note(row, true);
        else this.#pending.delete(row.organization_id, row.id);
      }
    }
  }

  has(id: string): boolean {
    return this.#pending.get(id) !== undefined;
  }

  list(organizationId: string): Pending[] {
    return this.#pending.listOf(organizationId);
  }

  /** Looks up the records in doubt, and calls `take` with each row that exists. */
  async resolve(take: (row: SandboxRow) => void): Promise<void> {
    for (const { id, organizationId, isInDoubt } of this.#pending.list()) {
      if (!isInDoubt) continue;
      const row = await this.#store.findById(id);
      // Another round may have handed it over meanwhile.
      if (this.#pending.get(id) === undefined) continue;
      if (row !== undefined) take(row);
      this.#pending.delete(organizationId, id);
    }
  }

  #note({ id, organization_id: organizationId }: NewSandboxRow, isInDoubt: boolean): void {
    this.#pending.set(organizationId, id, { id, organizationId, isInDoubt });
  }
}
