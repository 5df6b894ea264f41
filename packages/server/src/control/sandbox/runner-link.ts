/**
 * Keeps the records of a runner's sandboxes in agreement with its VMs. Two loops:
 *
 *     events      runner ─ vm_ended ─► driver ─ commit ─► acknowledge     (nothing is lost while control is down)
 *                        ─ egress_note ─► audit log ─► acknowledge
 *     reconcile   GET /roster ≠ records:  record without VM ─► hibernated, if that was requested and the capture exists;
 *                                                            else its end is requested, else it is lost
 *                                       hibernated record with VM ─► running; marked as being resumed without one ─► not any more
 *                                       hibernated record without a driver, from another control ─► adopted
 *                                       record that names a rollback ─► requested again: done, or refused
 *                                       VM without record ─► removed
 *                                       create without creator ─► failed
 *                 GET /captures ≠ records: see capture-keeper.ts
 *                 network policy, sent after an outage or in doubt: see egress-keeper.ts
 *
 * The reconciler leaves sandboxes with an operation under way to that operation. After an outage of the runner every
 * idle timer gets a grace, as callers could not send requests. A heartbeat whose digest of the roster is another one than that
 * of the last round starts a round at once. While the digest stays, and the records agree, most rounds only note that the VMs
 * were there at the heartbeat.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { AppError, type SandboxState } from '@coppice/contract';
import type { Logger } from 'pino';
import { digestRoster } from '../../lib/protocol/roster-digest.ts';
import type { HostMoment } from '../../lib/host-clock.ts';
import type { Heartbeat, Roster, RunnerEvent } from '../../lib/protocol/runner-protocol.ts';
import type { RunnerClaims } from '../ownership/runner-claims.ts';
import type { OwnedRunner } from '../runners/owned-runner.ts';
import type { CaptureKeeper } from '../snapshots/capture-keeper.ts';
import type { EgressKeeper } from '../egress/egress-keeper.ts';
import type { EgressNotes } from '../egress/egress-notes.ts';
import type { LiveDrivers } from './live/live-drivers.ts';
import { EventAcknowledger } from './event-acknowledger.ts';
import type { SandboxDriver } from './live/sandbox-driver.ts';
import type { SandboxStore } from './record/sandbox-store.ts';
import { recordRound } from './seen-round.ts';

const RECONNECT_DELAY_MS = 250;
/** Of a runner on another machine, which may stay away for long. */
const MAX_RECONNECT_DELAY_MS = 4_000;
/** Rounds in a row that trust the heartbeats. The next one also compares captures, and finds what a digest does not show. */
const MAX_QUIET_ROUNDS = 2;

/** The images of a runner are listed less often than its VMs, because control also notes the image of each create there. */
const ROUNDS_PER_LISTING = 3;

/** `local`: on the machine of control, with which it starts and stops. `joined`: elsewhere, and perhaps gone for good. */
export type LinkKind = 'local' | 'joined';

export interface RunnerLinkParts {
  runner: OwnedRunner;
  drivers: LiveDrivers;
  store: SandboxStore;
  captures: CaptureKeeper;
  notes: EgressNotes;
  egressKeeper: EgressKeeper;
  claims: Pick<RunnerClaims, 'claim' | 'noteRound' | 'noteReport'>;
  kind: LinkKind;
  /** Whether other controls may give it sandboxes. */
  isShared: boolean;
  reconcileIntervalMs: number;
  /** After this time without a connection the VMs of a joined runner count as lost. */
  runnerLossMs: number;
  log: Logger;
}

export class RunnerLink implements AsyncDisposable {
  readonly #parts: RunnerLinkParts;
  readonly #stop = new AbortController();
  readonly #replaced = Promise.withResolvers<Error>();
  #hasBeenLost = false;
  /** When the connection was lost, by the monotonic clock. Undefined while there is one, and once the VMs count as lost. */
  #lostAt: number | undefined = performance.now();
  /** The last reason, which is logged once. */
  #lostBy: string | undefined;
  /** Of the roster that was reconciled last. */
  #rosterDigest: string | undefined;
  /** The VMs of that roster. Undefined if not all of them ran. */
  #rosterVms: ReadonlySet<string> | undefined;
  /** When a heartbeat confirmed that roster. Each confirms one round. */
  #confirmedAt: HostMoment | undefined;
  #quietRounds = 0;
  #rounds = 0;
  /** Ids of what is being repaired. */
  readonly #repairing = new Set<string>();
  #loops: Promise<unknown> = Promise.resolve();

  constructor(parts: RunnerLinkParts) {
    this.#parts = parts;
  }

  /** Resolves after the first attempt to connect, whatever its outcome. */
  async start(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#loops = Promise.all([this.#followEvents(resolve), this.#reconcileLoop()]);
    await promise;
  }

  /** Resolves when another runner answers in its place: only a new start of control adopts the sandboxes. */
  get replaced(): Promise<Error> {
    return this.#replaced.promise;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#loops;
  }

  async #followEvents(noteTried: () => void): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        const failed = new AbortController();
        await this.#take();
        const events = await this.#parts.runner.client.openEvents(AbortSignal.any([signal, failed.signal]));
        await this.#noteConnected();
        noteTried();
        const acknowledger = new EventAcknowledger((place) =>
          this.#parts.runner.client.acknowledgeEvents(place),
        );
        for await (const event of events)
          if (event.type === 'heartbeat') this.#noteHeartbeat(event);
          else acknowledger.take(event, this.#handle(event)).catch((error: unknown) => failed.abort(error));
        this.#noteLost(failed.signal.reason);
      } catch (error) {
        this.#noteLost(error);
      }
      noteTried();
      await this.#loseAbandoned().catch((error: unknown) =>
        this.#parts.log.warn({ err: error }, 'the ends of lost sandboxes are recorded later'),
      );
      await this.#pause(this.#reconnectDelayMs);
    }
  }

  get #reconnectDelayMs(): number {
    const awayMs = this.#lostAt === undefined ? 0 : performance.now() - this.#lostAt;
    if (this.#parts.kind === 'local') return RECONNECT_DELAY_MS;
    return Math.min(MAX_RECONNECT_DELAY_MS, Math.max(RECONNECT_DELAY_MS, awayMs / 4));
  }

  async #reconcileLoop(): Promise<void> {
    const { signal } = this.#stop;
    const { reconcileIntervalMs: intervalMs } = this.#parts;
    // Rounds of a thousand runners at the same moment would take all connections to PostgreSQL for seconds.
    await this.#pause(Math.random() * intervalMs);
    while (!signal.aborted) {
      await this.#pause(intervalMs);
      if (signal.aborted || !this.#parts.runner.isConnected) continue;
      await this.#round().catch((error: unknown) =>
        this.#parts.log.warn({ err: error }, 'reconciling failed'),
      );
    }
  }

  /** Owns the runner from now on. Throws if it is another runner, or if another control has it now. */
  async #take(): Promise<void> {
    const { runner, claims } = this.#parts;
    const { runner_id: id, epoch: seen } = await runner.client.identify();
    this.#requireSame(id);
    const epoch = await claims.claim(runner.id, seen);
    if (epoch === undefined)
      throw new AppError('unavailable', `another control owns the runner ${id}, or it is revoked`);
    runner.client.useEpoch(epoch);
  }

  /** Reads the roster if it is no longer that of the last reconciliation. */
  #noteHeartbeat(heartbeat: Heartbeat): void {
    const { runner } = this.#parts;
    runner.presence.note(heartbeat);
    runner.noteCapacity(heartbeat.capacity);
    const isSame = heartbeat.roster === this.#rosterDigest;
    this.#confirmedAt = isSame ? runner.presence.now() : undefined;
    if (runner.isConnected && !isSame) this.#repair('roster', () => this.#reconcile());
  }

  async #noteConnected(): Promise<void> {
    const { runner, egressKeeper, log } = this.#parts;
    for (const { row } of this.#drivers()) egressKeeper.mark(row.id);
    await this.#reconcile();
    if (this.#hasBeenLost) for (const driver of this.#drivers()) driver.live.grace();
    runner.isConnected = true;
    this.#lostAt = undefined;
    log.info({ runner_id: runner.id }, 'the runner is connected');
  }

  #noteLost(error: unknown): void {
    const { runner, log } = this.#parts;
    const reason = error instanceof Error ? error.message : String(error);
    const isNews = runner.isConnected || this.#lostBy !== reason;
    this.#lostBy = reason;
    if (runner.isConnected) this.#lostAt = performance.now();
    runner.isConnected = false;
    this.#hasBeenLost = true;
    if (isNews && !this.#stop.signal.aborted)
      log.warn({ err: error, runner_id: runner.id }, 'the runner is not connected');
  }

  /** Ends the sandboxes of a runner that has been away for too long. If it comes back, it removes their VMs. */
  async #loseAbandoned(): Promise<void> {
    const { runner, drivers, kind, runnerLossMs, log } = this.#parts;
    if (kind === 'local' || this.#stop.signal.aborted) return;
    if (this.#lostAt === undefined || performance.now() - this.#lostAt < runnerLossMs) return;
    log.warn({ runner_id: runner.id }, 'the runner has been away for too long; its sandboxes are lost');
    await drivers.loseAll(runner.id);
    this.#lostAt = undefined;
  }

  /** Handles an event without waiting for those of other sandboxes, whose commit locks may be held for long. */
  async #handle(event: RunnerEvent): Promise<void> {
    const { drivers, notes, runner } = this.#parts;
    const id = event.type === 'vm_ended' ? event.end.id : event.vm_id;
    const driver = drivers.find(id);
    if (driver !== undefined && driver.row.runner_id !== runner.id) return this.#ignore(event.type, id);
    if (event.type === 'egress_note')
      return notes.take(event, runner.id, driver?.live.begun ?? Promise.resolve());
    await notes.noteEnd(id, { hasBegun: driver?.row.status !== 'creating' });
    await driver?.handleEnd(event.end);
    notes.forgetEnd(id);
  }

  async #round(): Promise<void> {
    const { runner, store, claims, drivers, egressKeeper } = this.#parts;
    const seenAt = this.#confirmedAt;
    this.#confirmedAt = undefined;
    const vms = this.#rosterVms;
    if (seenAt === undefined || this.#quietRounds >= MAX_QUIET_ROUNDS || !this.#agreesWith(vms))
      return this.#reconcile();
    this.#quietRounds += 1;
    const now = this.#drivers();
    await recordRound({ runner, store, claims }, { before: now, now, vms, seenAt });
    await this.#adoptMore();
    void egressKeeper.tell((id) => drivers.find(id));
  }

  /** Returns whether the VMs are those of the sandboxes that run, and none of the sandboxes needs a repair. */
  #agreesWith(vms: ReadonlySet<string> | undefined): vms is ReadonlySet<string> {
    const drivers = this.#drivers();
    const running = drivers.filter(({ row }) => row.status === 'running');
    return (
      vms?.size === running.length &&
      running.every(({ row }) => vms.has(row.id)) &&
      !drivers.some(needsRepair)
    );
  }

  /** Adopts what SQL has and no roster shows. Each round does, also a quiet one. */
  async #adoptMore(): Promise<void> {
    const { drivers, runner, isShared } = this.#parts;
    await drivers.recoverInserts();
    if (this.#rounds++ % ROUNDS_PER_LISTING === 0)
      this.#repair('images', async () =>
        runner.images.report(await runner.client.listImages({ withBuilt: true })),
      );
    if (isShared) await drivers.adoptMoved(runner.id);
  }

  async #reconcile(): Promise<void> {
    const { drivers, runner, store, claims, captures, egressKeeper } = this.#parts;
    this.#quietRounds = 0;
    runner.noteStatus(await runner.client.status());
    // Both are taken before the VMs are listed: a sandbox that starts in between is in neither.
    const live = new Set(this.#drivers().map(({ row }) => row.id));
    const views = this.#drivers()
      .filter((driver) => !driver.isBusy)
      .map(toView);
    const before = this.#drivers().filter(({ row }) => row.status === 'running');
    const { vms: listed, starting } = await this.#readRoster();
    const vms = new Set(listed.map((vm) => vm.id));
    const seenAt = runner.presence.now();
    await recordRound({ runner, store, claims }, { before, now: this.#drivers(), vms, seenAt });
    this.#repair('report', async () => claims.noteReport(runner.id, await runner.client.measures.runner()));
    await this.#adoptMore();
    const running = new Set(listed.filter((vm) => vm.state === 'running').map((vm) => vm.id));
    for (const { driver, status, isResuming, revision } of views) {
      const { id } = driver.row;
      if (status === 'running' && !vms.has(id)) this.#repair(id, () => driver.handleMissing(revision));
      if (status === 'hibernated' && running.has(id)) this.#repair(id, () => driver.handleThere(revision));
      if (isResuming && !vms.has(id) && starting?.includes(id) === false)
        this.#repair(id, () => driver.handleNotThere(revision));
      if (running.has(id) && driver.rollback.isAbandoned) this.#repair(id, () => driver.rollback.settle());
    }
    for (const driver of this.#drivers())
      if (driver.boot.isInterrupted) this.#repair(driver.row.id, () => driver.boot.resolveInterrupted());
    // A sandbox that has ended since then took its VM with it. If not, the next round finds the VM.
    const own = new Set(this.#drivers().map(({ row }) => row.id));
    const strange = [...vms].filter((id) => !live.has(id) && !own.has(id));
    // SQL decides, and not the memory of this process: a VM that it removed by mistake would be lost.
    const alive = await store.filterAlive(runner.id, strange);
    for (const id of strange) if (!alive.has(id)) this.#repair(id, () => this.#removeOrphan(id));
    this.#repair('captures', () => captures.reconcile());
    void egressKeeper.tell((id) => drivers.find(id));
  }

  /** A runner reports only its own sandboxes: this one was moved away from it, or was never there. */
  #ignore(type: RunnerEvent['type'], id: string): void {
    const { runner, log } = this.#parts;
    const of = { runner_id: runner.id, sandbox_id: id, event: type };
    log.warn(of, 'an event of a runner about a sandbox of another one is ignored');
  }

  #drivers(): SandboxDriver[] {
    return this.#parts.drivers.listAt(this.#parts.runner.id);
  }

  async #readRoster(): Promise<Roster> {
    const { runner } = this.#parts;
    const roster = await runner.client.readRoster();
    this.#requireSame(roster.runner_id);
    runner.presence.note(roster);
    this.#rosterDigest = digestRoster(roster.vms);
    this.#confirmedAt = undefined;
    const haveStarted = roster.vms.every(({ state }) => state === 'running');
    this.#rosterVms = haveStarted ? new Set(roster.vms.map(({ id }) => id)) : undefined;
    return roster;
  }

  /** Throws `unavailable` for another runner than that of this link, like one whose data was deleted. */
  #requireSame(id: string): void {
    const { runner } = this.#parts;
    if (id === runner.id) return;
    const error = new AppError('unavailable', `the runner ${id} answers in the place of ${runner.id}`);
    this.#replaced.resolve(error);
    throw error;
  }

  /**
   * Runs a repair in the background: one sandbox in the middle of a long step must not delay the others or the start of
   * the service. Failed repairs are tried again in the next round.
   */
  #repair(id: string, work: () => Promise<void>): void {
    if (this.#repairing.has(id)) return;
    this.#repairing.add(id);
    work()
      .catch((error: unknown) =>
        this.#parts.log.warn(
          { err: error, subject: id },
          'records could not be reconciled with the runner; control tries again',
        ),
      )
      .finally(() => this.#repairing.delete(id));
  }

  async #removeOrphan(id: string): Promise<void> {
    this.#parts.log.warn({ sandbox_id: id }, 'a VM without a live record is removed');
    try {
      await this.#parts.runner.client.deleteVm(id);
    } catch (error) {
      if (!(error instanceof AppError && error.code === 'not_found')) throw error;
    }
  }

  async #pause(delayMs: number): Promise<void> {
    const { signal } = this.#stop;
    await delay(delayMs, undefined, { signal }).catch((error: unknown) => {
      if (!signal.aborted) throw error;
    });
  }
}

/** A sandbox as it was before the VMs were listed. */
interface View {
  driver: SandboxDriver;
  status: SandboxState;
  /** Hibernated, and perhaps about to run. */
  isResuming: boolean;
  revision: number;
}

function toView(driver: SandboxDriver): View {
  const { status, is_resuming } = driver.row;
  const isResuming = status === 'hibernated' && is_resuming;
  return { driver, status, isResuming, revision: driver.revision };
}

/** Whether only the roster, with the VMs that are starting, says what has become of an operation. */
function needsRepair(driver: SandboxDriver): boolean {
  const { boot, rollback, isBusy } = driver;
  return boot.isInterrupted || rollback.isAbandoned || (!isBusy && toView(driver).isResuming);
}
