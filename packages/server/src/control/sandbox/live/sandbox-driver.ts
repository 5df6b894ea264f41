/**
 * The only writer of a sandbox's state. It receives callers' requests and the runner's events. The contract's tables
 * say what each may do. State changes are committed to SQL, one after the other, before they are visible.
 *
 *     HTTP ── use, fork, hibernate, destroy … ►┌────────┐── commit ─► SQL
 *     timer ── expired ───────────────────────►│ driver │
 *     runner ── started, saved, ended, lost ──►└────────┘── /vms/{id}, /captures/{id} ─► runner
 *
 * An operation continues when its caller disconnects: the driver's promises do not belong to a connection.
 */
import {
  findAdmission,
  findTransition,
  type DestroyResult,
  type PatchSandboxRequest,
  type SandboxRecord,
  type StatusReason,
} from '@coppice/contract';
import type { Logger } from 'pino';
import { traced } from '../../../lib/tracing/tracing.ts';
import type { VmEnd } from '../../../lib/protocol/runner-protocol.ts';
import type { AuditLog } from '../../audit/audit-log.ts';
import type { ControlLimits } from '../../control-config.ts';
import type { SandboxRow } from '../record/sandbox-tables.ts';
import type { SandboxDisks } from '../../disks/sandbox-disks.ts';
import type { EgressKeeper } from '../../egress/egress-keeper.ts';
import type { EgressNotes } from '../../egress/egress-notes.ts';
import type { Grants } from '../../egress/grants.ts';
import { ElsewhereError } from '../../placement/elsewhere.ts';
import type { RunnerClient } from '../../placement/runner-client.ts';
import type { OwnedRunner } from '../../runners/owned-runner.ts';
import type { Clock } from '../../time/clock.ts';
import { readEndReason } from '../record/ending.ts';
import type { ExpiryReason } from './idle-timer.ts';
import { LiveSandbox } from './live-sandbox.ts';
import { resolveHibernated, resolveMissing } from './missing-vm.ts';
import { buildDestroyResult } from '../record/record.ts';
import { buildSettings } from '../record/settings.ts';
import { SandboxBoot } from './sandbox-boot.ts';
import { SandboxCopies } from './sandbox-copies.ts';
import { SandboxEgress } from './sandbox-egress.ts';
import { SandboxHibernation } from './sandbox-hibernation.ts';
import { SandboxRollback } from './sandbox-rollback.ts';
import type { SandboxStore } from '../record/sandbox-store.ts';
import type { NoteStart } from './start-note.ts';
import type { ResumePlaces } from './resume-places.ts';
import type { SandboxMoves } from './sandbox-moves.ts';
import { isNotFound, SandboxVm } from './sandbox-vm.ts';
import { enterRecordStep } from '../record/steps.ts';

export interface DriverParts {
  /** That of its VM, or of its hibernation. */
  runner: OwnedRunner;
  places: ResumePlaces;
  store: SandboxStore;
  audit: AuditLog;
  grants: Grants;
  disks: SandboxDisks;
  notes: EgressNotes;
  egressKeeper: EgressKeeper;
  clock: Clock;
  limits: ControlLimits;
  log: Logger;
  /** Called with the row when its state, as committed, has changed. */
  onState: (row: Readonly<SandboxRow>) => void;
  /** Called with the id when the VM is gone, before the end is committed. */
  onEnding: (id: string) => Promise<void>;
  /** Called with the row when its guest has been rolled back. */
  onRolledBack: (row: Readonly<SandboxRow>) => void;
  /** Called with each start of the VM, when its outcome is known. */
  noteStart: NoteStart;
  /** Called when the end of the sandbox is committed. */
  onFinal: () => void;
  /** Called when the sandbox belongs to a runner of another control. */
  onGone: () => void;
  moves: SandboxMoves;
}

export class SandboxDriver {
  #home: OwnedRunner;
  /** Its network policy and credentials. */
  readonly egress: SandboxEgress;
  readonly live: LiveSandbox;
  readonly boot: SandboxBoot;
  readonly hibernation: SandboxHibernation;
  readonly copies: SandboxCopies;
  readonly rollback: SandboxRollback;
  readonly #log: Logger;
  readonly #vm: SandboxVm;
  readonly #disks: SandboxDisks;

  constructor(row: SandboxRow, parts: DriverParts) {
    const { store, audit, notes, grants, disks, clock, limits } = parts;
    const { onEnding, onState, onFinal, onGone, moves, places, noteStart } = parts;
    this.#home = parts.runner;
    const home = (): OwnedRunner => this.#home;
    this.#disks = disks;
    this.#log = parts.log.child({ sandbox_id: row.id });
    this.#vm = new SandboxVm(row.id, { runner: this.runner, log: this.#log, limits });
    this.live = new LiveSandbox(row, {
      store,
      audit,
      notes,
      disks,
      clock,
      presence: { now: () => this.#home.presence.now() },
      log: this.#log,
      onExpire: (reason) => void this.#expire(reason),
      settleRollback: () => this.rollback.settleInTurn(),
      onEnding,
      onState,
      onFinal,
      isHere: (runnerId) => runnerId === this.#home.id,
      onGone,
    });
    const vm = this.#vm;
    const onDoubt = (): void => parts.egressKeeper.mark(row.id);
    this.egress = new SandboxEgress(this.live, this.#vm, { audit, grants, onDoubt });
    const { egress } = this;
    this.boot = new SandboxBoot(this.live, { vm, grants, audit, disks, noteStart });
    this.hibernation = new SandboxHibernation(this.live, {
      vm,
      egress,
      grants,
      places,
      home,
      moves,
      disks,
      noteStart,
    });
    this.copies = new SandboxCopies(this.live, { vm, egress });
    const onDone = (): void => parts.onRolledBack(this.row);
    this.rollback = new SandboxRollback(this.live, { vm, audit, disks, onDone, log: this.#log });
  }

  /** The runner of its VM, or of its hibernation. */
  get home(): OwnedRunner {
    return this.#home;
  }

  get runner(): RunnerClient {
    return this.#home.client;
  }

  /** Call when the row names another runner. */
  moveTo(runner: OwnedRunner): void {
    this.#home = runner;
    this.#vm.moveTo(runner.client);
  }

  get row(): Readonly<SandboxRow> {
    return this.live.row;
  }

  get record(): SandboxRecord {
    return this.live.record;
  }

  /** Changes with every operation. After a change, earlier observations may no longer hold. */
  get revision(): number {
    return this.live.operations.count;
  }

  get isBusy(): boolean {
    return this.live.operations.current !== null;
  }

  /**
   * Runs a task that talks to the guest. Waits first for an operation that the guest survives. With `auto_hibernate`,
   * unless `mayWake` is false, it also resumes a hibernated sandbox. The idle timer waits for the task. Throws
   * `invalid_state` if the VM does not run.
   */
  async use<T>(task: () => Promise<T>, { mayWake = true } = {}): Promise<T> {
    const close = await this.#enter(mayWake);
    const since = this.revision;
    try {
      return await task();
    } catch (error) {
      if (isNotFound(error)) await this.handleMissing(since);
      throw this.#isGuestGone ? this.live.refusal('use') : error;
    } finally {
      close();
    }
  }

  /**
   * Wakes the sandbox before a use that cannot be forwarded once it has begun. Throws an {@link ElsewhereError} if another
   * control has it then; the use itself meets any other failure.
   */
  async wakeEarly(): Promise<void> {
    if (this.row.status !== 'hibernated' || !this.row.auto_hibernate) return;
    await this.use(async () => undefined).catch((error: unknown) => {
      if (error instanceof ElsewhereError) throw error;
    });
  }

  /** Changes settings, all or none, and restarts the idle timer. `sealedEnv`: variables of the request, if it has any. */
  configure(settings: PatchSandboxRequest, sealedEnv?: Buffer | null): Promise<SandboxRecord> {
    return this.live.inCallersTurn(async () => {
      this.live.require('configure');
      const changed = buildSettings(this.row, settings, { now: this.live.now, sealedEnv });
      if (changed !== undefined) await this.live.commit(changed.update, changed.note);
      this.live.restartTimer();
      return this.record;
    });
  }

  /** Also waits a while until what the sandbox wrote to its disk is stored. */
  destroy(reason: StatusReason = 'requested'): Promise<DestroyResult> {
    return traced('sandbox.destroy', async () => {
      await this.live.operate('destroy', () => this.#destroyNow(reason));
      const { id } = this.row;
      await this.#disks.waitUntilDetached(id);
      return buildDestroyResult(this.row, this.#disks.findDetaching(id));
    });
  }

  /** Handles the runner's report that the VM has ended. */
  handleEnd(end: VmEnd): Promise<void> {
    const { event, reason } = readEndReason(end);
    return this.live.inTurn(() => this.live.end(event, reason, end));
  }

  /** Handles the loss of the runner with its VMs. */
  lose(): Promise<void> {
    return this.live.inTurn(() => this.live.end('lost', 'vm_lost'));
  }

  /**
   * Handles a VM that the runner did not have at revision `since`: the sandbox is hibernated, or the runner has an end
   * that control does not have, else it is lost.
   */
  handleMissing(since: number): Promise<void> {
    return this.#ifUnchanged(since, () => resolveMissing(this.live, this.#vm));
  }

  /** Handles a VM that the runner had running at revision `since`. */
  handleThere(since: number): Promise<void> {
    return this.#ifUnchanged(since, () => this.hibernation.resolveThere());
  }

  /** Handles a resume of which the runner knew nothing at revision `since`. */
  handleNotThere(since: number): Promise<void> {
    return this.#ifUnchanged(since, () => this.hibernation.resolveNotThere());
  }

  #ifUnchanged(since: number, work: () => Promise<void>): Promise<void> {
    return this.live.inTurn(async () => {
      if (!this.isBusy && this.revision === since) await work();
    });
  }

  /**
   * Waits, resumes or throws. Afterwards the guest runs, and the idle timer waits for a call of the returned function.
   */
  async #enter(mayWake: boolean): Promise<() => void> {
    for (;;) {
      const { current, ended } = this.live.operations;
      const transition = findTransition(this.row.status, 'use');
      const wakes = this.row.auto_hibernate && transition.outcome === 'refuse' && transition.wakes;
      const isPatient = this.row.auto_hibernate && current === 'hibernating';
      if (isPatient || findAdmission(current, 'use') === 'wait') await ended;
      else if (current === null && this.rollback.isPending) await this.rollback.settle();
      else if (mayWake && wakes && current === null) await this.hibernation.wake();
      else {
        if (!this.live.operations.admits('use')) throw this.live.refusal('use');
        this.live.require('use', { needsFullKey: !mayWake && this.row.auto_hibernate });
        return this.live.open();
      }
    }
  }

  get #isGuestGone(): boolean {
    return this.row.status !== 'running' || findAdmission(this.live.operations.current, 'use') !== 'go';
  }

  async #destroyNow(reason: StatusReason): Promise<void> {
    const captureId = await this.live.inTurn(async () => {
      this.live.require('destroy');
      await enterRecordStep('record.remove');
      this.live.noteRemoval(reason);
      // Of one that has no VM nothing is to be asked: its runner may be away for good.
      const end = this.#isAway ? undefined : await this.#vm.remove();
      // A hibernation whose answer was lost may have saved the VM. Its usage counts, too.
      if (end === undefined) await resolveHibernated(this.live, this.#vm);
      const { hibernation_id } = this.row;
      await this.live.end('removed', reason, end);
      return hibernation_id;
    });
    // When the runner is back, the reconciler finds a capture that no record names.
    if (captureId !== null && this.#home.isConnected) await this.#vm.forgetCapture(captureId);
  }

  /** Whether no runner has a VM of it, and its own one does not answer. */
  get #isAway(): boolean {
    return this.hibernation.isAtRest && !this.#home.isConnected;
  }

  async #expire(reason: ExpiryReason): Promise<void> {
    try {
      await this.live.operations.run(() => this.#endExpired(), false);
    } catch (error) {
      this.#log.warn(
        { err: error, reason },
        'an expired sandbox could not be ended; control tries again later',
      );
      this.live.grace();
    }
  }

  /** Checks again whether the sandbox expired: a request may have come while this waited for its queue slot. */
  async #endExpired(): Promise<void> {
    await this.live.settle();
    const reason = this.live.expired;
    // The host's clock was set back. The timer starts again.
    if (reason === undefined) return this.live.grace(0);
    if (reason === 'idle_timeout' && this.row.auto_hibernate) {
      await this.rollback.settleInTurn();
      await this.live.carryOut('hibernate', () => this.hibernation.hibernateNow());
    } else await this.live.carryOut('destroy', () => this.#destroyNow(reason));
  }
}
