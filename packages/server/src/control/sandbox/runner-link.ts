/**
 * Keeps the records in agreement with the VMs. Two loops:
 *
 *     events      runner ─ vm_ended ─► driver ─ commit ─► acknowledge     (nothing is lost while control is down)
 *                        ─ egress_note ─► audit log ─► acknowledge
 *     reconcile   GET /roster ≠ records:  record without VM ─► hibernated, if that was requested and the capture exists;
 *                                                            else its end is requested, else it is lost
 *                                       hibernated record with VM ─► running
 *                                       record that names a rollback ─► requested again: done, or refused
 *                                       VM without record ─► removed
 *                                       create without creator ─► failed
 *                 GET /captures ≠ records: see capture-keeper.ts
 *                 network policy, sent after an outage or in doubt: see egress-keeper.ts
 *
 * The reconciler leaves sandboxes with an operation under way to that operation. After an outage of the runner every
 * idle timer gets a grace, as callers could not send requests. A heartbeat whose digest of the roster is another one than that
 * of the last round starts a round at once.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { AppError, type SandboxState } from '@coppice/contract';
import type { Logger } from 'pino';
import { digestRoster } from '../../lib/protocol/roster-digest.ts';
import type { Accelerator, Heartbeat, RunnerEvent } from '../../lib/protocol/runner-protocol.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import type { RunnerClaims } from '../ownership/runner-claims.ts';
import type { RunnerPresence } from './runner-presence.ts';
import type { CaptureKeeper } from '../snapshots/capture-keeper.ts';
import type { EgressKeeper } from '../egress/egress-keeper.ts';
import type { EgressNotes } from '../egress/egress-notes.ts';
import type { LiveDrivers } from './live/live-drivers.ts';
import { EventAcknowledger } from './event-acknowledger.ts';
import type { SandboxDriver } from './live/sandbox-driver.ts';
import type { SandboxStore } from './record/sandbox-store.ts';

const RECONNECT_DELAY_MS = 250;

export interface RunnerLinkParts {
  runner: RunnerClient;
  drivers: LiveDrivers;
  store: SandboxStore;
  captures: CaptureKeeper;
  notes: EgressNotes;
  egressKeeper: EgressKeeper;
  presence: RunnerPresence;
  claims: Pick<RunnerClaims, 'take'>;
  region: string;
  reconcileIntervalMs: number;
  log: Logger;
}

export class RunnerLink implements AsyncDisposable {
  readonly #parts: RunnerLinkParts;
  readonly #stop = new AbortController();
  #isConnected = false;
  #hasBeenLost = false;
  /** The last reason, which is logged once. */
  #lostBy: string | undefined;
  #accelerator: Accelerator | undefined;
  /** Of the roster that was reconciled last. */
  #rosterDigest: string | undefined;
  /** Ids of what is being repaired. */
  readonly #repairing = new Set<string>();
  #loops: Promise<unknown> = Promise.resolve();

  constructor(parts: RunnerLinkParts) {
    this.#parts = parts;
  }

  /** True while the runner's events arrive. */
  get isConnected(): boolean {
    return this.#isConnected;
  }

  /** Accelerator of new VMs, as the runner last reported it. Throws `unavailable` before the first report. */
  get accelerator(): Accelerator {
    if (this.#accelerator === undefined)
      throw new AppError('unavailable', 'the runner of this machine has not been connected yet');
    return this.#accelerator;
  }

  /** Resolves after the first attempt to connect, whatever its outcome. */
  async start(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#loops = Promise.all([this.#followEvents(resolve), this.#reconcileLoop()]);
    await promise;
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
        const events = await this.#parts.runner.openEvents(AbortSignal.any([signal, failed.signal]));
        await this.#noteConnected();
        noteTried();
        const acknowledger = new EventAcknowledger((place) => this.#parts.runner.acknowledgeEvents(place));
        for await (const event of events)
          if (event.type === 'heartbeat') this.#noteHeartbeat(event);
          else acknowledger.take(event, this.#handle(event)).catch((error: unknown) => failed.abort(error));
        this.#noteLost(failed.signal.reason);
      } catch (error) {
        this.#noteLost(error);
      }
      noteTried();
      await this.#pause(RECONNECT_DELAY_MS);
    }
  }

  async #reconcileLoop(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.#pause(this.#parts.reconcileIntervalMs);
      if (signal.aborted || !this.#isConnected) continue;
      await this.#reconcile().catch((error: unknown) =>
        this.#parts.log.warn({ err: error }, 'reconciling failed'),
      );
    }
  }

  /** Owns the runner from now on. */
  async #take(): Promise<void> {
    const { runner, claims, region } = this.#parts;
    const { runner_id: id, epoch: seen } = await runner.identify();
    runner.useEpoch(await claims.take({ id, seen }, region));
  }

  /** Reads the roster if it is no longer that of the last reconciliation. */
  #noteHeartbeat(heartbeat: Heartbeat): void {
    this.#parts.presence.note(heartbeat);
    if (this.#isConnected && heartbeat.roster !== this.#rosterDigest)
      this.#repair('roster', () => this.#reconcile());
  }

  async #noteConnected(): Promise<void> {
    for (const { row } of this.#parts.drivers.list()) this.#parts.egressKeeper.mark(row.id);
    await this.#reconcile();
    if (this.#hasBeenLost) for (const driver of this.#parts.drivers.list()) driver.live.grace();
    this.#isConnected = true;
    this.#parts.log.info('the runner is connected');
  }

  #noteLost(error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error);
    const isNews = this.#isConnected || this.#lostBy !== reason;
    this.#lostBy = reason;
    this.#isConnected = false;
    this.#hasBeenLost = true;
    if (isNews && !this.#stop.signal.aborted)
      this.#parts.log.warn({ err: error }, 'the runner is not connected');
  }

  /** Handles an event without waiting for those of other sandboxes, whose commit locks may be held for long. */
  async #handle(event: RunnerEvent): Promise<void> {
    const { drivers, notes } = this.#parts;
    const id = event.type === 'vm_ended' ? event.end.id : event.vm_id;
    const driver = drivers.find(id);
    if (event.type === 'egress_note') return notes.take(event, driver?.live.begun ?? Promise.resolve());
    await notes.noteEnd(id, { hasBegun: driver?.row.status !== 'creating' });
    await driver?.handleEnd(event.end);
    notes.forgetEnd(id);
  }

  async #reconcile(): Promise<void> {
    const { drivers, runner, store, presence, captures, egressKeeper } = this.#parts;
    const { accelerator } = await runner.status();
    this.#accelerator = accelerator;
    // Both are taken before the VMs are listed: a sandbox that starts in between is in neither.
    const live = new Set(drivers.list().map(({ row }) => row.id));
    const views = drivers
      .list()
      .filter((driver) => !driver.isBusy)
      .map(toView);
    const roster = await runner.readRoster();
    const { vms: listed } = roster;
    presence.note(roster);
    this.#rosterDigest = digestRoster(listed);
    const vms = new Set(listed.map((vm) => vm.id));
    const seenAt = presence.now();
    const seen = drivers.list().filter(({ row }) => row.status === 'running' && vms.has(row.id));
    for (const driver of seen) driver.live.noteSeen(seenAt);
    await store.recordHeartbeats(seen.map(toHeartbeat), seenAt);
    await drivers.recoverInserts();
    const running = new Set(listed.filter((vm) => vm.state === 'running').map((vm) => vm.id));
    for (const { driver, status, revision } of views) {
      const { id } = driver.row;
      if (status === 'running' && !vms.has(id)) this.#repair(id, () => driver.handleMissing(revision));
      if (status === 'hibernated' && running.has(id)) this.#repair(id, () => driver.handleThere(revision));
      if (running.has(id) && driver.rollback.isAbandoned) this.#repair(id, () => driver.rollback.settle());
    }
    for (const driver of drivers.list())
      if (driver.boot.isInterrupted) this.#repair(driver.row.id, () => driver.boot.resolveInterrupted());
    // A sandbox that has ended since then took its VM with it. If not, the next round finds the VM.
    const strange = [...vms].filter((id) => !live.has(id) && drivers.find(id) === undefined);
    // SQL decides, and not the memory of this process: a VM that it removed by mistake would be lost.
    const alive = await store.filterAlive(strange);
    for (const id of strange) if (!alive.has(id)) this.#repair(id, () => this.#removeOrphan(id));
    this.#repair('captures', () => captures.reconcile());
    void egressKeeper.tell((id) => drivers.find(id));
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
      await this.#parts.runner.deleteVm(id);
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
  revision: number;
}

function toView(driver: SandboxDriver): View {
  return { driver, status: driver.row.status, revision: driver.revision };
}

function toHeartbeat(driver: SandboxDriver): { id: string; lastActiveAt: number } {
  return { id: driver.row.id, lastActiveAt: driver.live.lastActiveAt };
}
