/** Hibernates and resumes a sandbox, and resolves hibernations and resumes whose outcome is unknown. */
import { AppError, findTransition, type ErrorCode, type SandboxRecord } from '@coppice/contract';
import type { MountedWorkspace, VmWorkspace } from '../../../lib/protocol/disk-protocol.ts';
import type { VmInfo } from '../../../lib/protocol/runner-protocol.ts';
import type { SandboxDisks } from '../../disks/sandbox-disks.ts';
import { runUntraced, traced } from '../../../lib/tracing/tracing.ts';
import { ElsewhereError } from '../../placement/elsewhere.ts';
import { isUnanswered } from '../../placement/runner-error.ts';
import type { OwnedRunner } from '../../runners/owned-runner.ts';
import type { OpenGrant } from '../../egress/grant.ts';
import type { Grants } from '../../egress/grants.ts';
import { buildMounted } from '../record/disk-notes.ts';
import {
  buildHibernated,
  buildHibernatedNotes,
  buildResumed,
  buildResumedNotes,
} from '../record/hibernation.ts';
import { newHibernationId } from '../record/ids.ts';
import type { SandboxUpdate } from '../record/sandbox-tables.ts';
import type { LiveSandbox } from './live-sandbox.ts';
import { resolveHibernated } from './missing-vm.ts';
import type { ResumePlaces } from './resume-places.ts';
import type { SandboxEgress } from './sandbox-egress.ts';
import type { SandboxMoves } from './sandbox-moves.ts';
import type { SandboxVm } from './sandbox-vm.ts';
import { timeStart, type NoteStart } from './start-note.ts';
import { enterRecordStep } from '../record/steps.ts';
import { invariant } from '../../../lib/invariant.ts';

export interface HibernationParts {
  vm: SandboxVm;
  egress: SandboxEgress;
  grants: Grants;
  places: ResumePlaces;
  /** The runner of the sandbox. */
  home: () => OwnedRunner;
  moves: SandboxMoves;
  disks: SandboxDisks;
  noteStart: NoteStart;
}

export class SandboxHibernation {
  readonly #live: LiveSandbox;
  readonly #vm: SandboxVm;
  readonly #egress: SandboxEgress;
  readonly #grants: Grants;
  readonly #places: ResumePlaces;
  readonly #home: HibernationParts['home'];
  readonly #moves: SandboxMoves;
  readonly #disks: SandboxDisks;
  readonly #noteStart: NoteStart;
  #waking: Promise<SandboxRecord> | undefined;
  /** Whether a VM may run since a resume without an outcome, with the policy and the secrets of that time. */
  #mayRun = false;

  constructor(live: LiveSandbox, parts: HibernationParts) {
    this.#live = live;
    this.#vm = parts.vm;
    this.#egress = parts.egress;
    this.#grants = parts.grants;
    this.#places = parts.places;
    this.#home = parts.home;
    this.#moves = parts.moves;
    this.#disks = parts.disks;
    this.#noteStart = parts.noteStart;
  }

  /** Whether it is hibernated, and no runner can have a VM of it. */
  get isAtRest(): boolean {
    return this.#live.row.status === 'hibernated' && !this.#isPinned;
  }

  /** Whether a VM may exist at its runner, as the outcome of a resume is not known. */
  get #isPinned(): boolean {
    return this.#mayRun || this.#live.row.is_resuming;
  }

  /** Waits a while until the disk of the sandbox is free for others, which it is at once unless the store fails. */
  hibernate(): Promise<SandboxRecord> {
    return traced('sandbox.hibernate', async () => {
      await this.#live.operate('hibernate', () => this.hibernateNow());
      await this.#disks.waitUntilDetached(this.#live.row.id);
      return this.#live.record;
    });
  }

  /** Call only within the operation. After a failure the sandbox still runs, unless the record says otherwise. */
  async hibernateNow(): Promise<void> {
    // Joins a hibernation whose outcome is unknown.
    const captureId = this.#live.row.hibernation_id ?? newHibernationId();
    await this.#live.inTurn(async () => {
      this.#live.require('hibernate');
      await this.#live.commit({ hibernation_id: captureId });
    });
    await enterRecordStep('record.hibernate');
    try {
      const capture = await this.#vm.hibernate(captureId);
      await enterRecordStep('record.hibernated');
      await this.#live.inTurn(async () => {
        this.#live.require('hibernate');
        await this.#live.commit(
          buildHibernated(this.#live.row, capture, this.#live.now),
          buildHibernatedNotes(this.#live.row, capture),
        );
        this.#mayRun = false;
      });
    } catch (error) {
      await this.#settleFailed(error);
    }
  }

  /** `isFresh`: the disk is mounted anew. Throws `disk_in_use` or `disk_changed` if it cannot be attached again. */
  resume({ isFresh = false } = {}): Promise<SandboxRecord> {
    return traced('sandbox.resume', async () => {
      await this.#live.operate('resume', () => this.#resume(isFresh));
      return this.#live.record;
    });
  }

  /** Resumes the sandbox for a use. Uses that wait share one resume. Throws if it does not run afterwards. */
  async wake(): Promise<void> {
    this.#waking ??= this.resume().finally(() => (this.#waking = undefined));
    try {
      await this.#waking;
    } catch (error) {
      if (this.#live.row.status === 'running') return;
      // Another control resumes it, and then carries the use out.
      if (error instanceof ElsewhereError || !isUnanswered(error)) throw error;
      throw notResumed(error);
    }
  }

  /** Commits that the sandbox runs, because its VM runs. Call only while holding the commit lock. */
  async resolveThere(): Promise<void> {
    if (this.#live.row.status !== 'hibernated') return;
    await this.#commitResumed();
    this.#mayRun = false;
    this.#egress.doubt();
  }

  /** Commits that no resume is under way. Call only while holding the commit lock, when the runner has and begins no VM of it. */
  async resolveNotThere(): Promise<void> {
    const { status, is_resuming } = this.#live.row;
    if (status !== 'hibernated' || !is_resuming) return;
    await this.#live.commit({ is_resuming: false });
    this.#mayRun = false;
  }

  /** Asks one runner after the other. */
  async #resume(isFresh: boolean): Promise<void> {
    const failures = new Map<string, unknown>();
    for (;;) {
      const placing = { row: this.#live.row, home: this.#home(), failures, isPinned: this.#isPinned };
      const place = await this.#places.find(placing);
      if (typeof place === 'string') return this.#handOver(place, [...failures.values()].at(-1));
      using _ = place;
      const { runner } = place;
      try {
        return await this.#resumeAt(runner, { isFresh, isFirst: !placing.isPinned });
      } catch (error) {
        const { status } = this.#live.row;
        // Only the answer to the commit was lost.
        if (status === 'running') return;
        failures.set(runner.id, await this.#places.explain({ ...placing, home: runner }, error));
        if (status !== 'hibernated' || this.#isPinned || !isTriedElsewhere(error))
          throw failures.get(runner.id);
      }
    }
  }

  /**
   * Gives the sandbox to a runner of another control. Throws an {@link ElsewhereError}. `failure`: why no runner here resumed it. It is
   * the answer to a request that was forwarded: controls whose runners all refuse must not give the sandbox to each other.
   */
  async #handOver(runnerId: string, failure: unknown): Promise<never> {
    await this.#disks.waitUntilDetached(this.#live.row.id);
    await this.#live.inTurn(() =>
      this.#live.commitBy((row) => this.#moves.handOver(row, { from: this.#home(), to: runnerId })),
    );
    // Finds out that the sandbox is not of this control any more.
    await this.#live.settle();
    throw new ElsewhereError(runnerId, failure instanceof AppError ? failure : undefined);
  }

  /** Reserves the resume at a runner, to which the sandbox belongs from then on. */
  async #reserve(runner: OwnedRunner): Promise<void> {
    const from = this.#home();
    if (from !== runner) await this.#disks.waitUntilDetached(this.#live.row.id);
    await this.#live.inTurn(async () => {
      this.#live.require('resume');
      await this.#live.commitBy((row) => this.#moves.reserve(row, { from, to: runner }));
      if (from !== runner) this.#moves.follow(runner);
    });
  }

  /** `isFirst`: no earlier resume may have begun there. */
  async #resumeAt(
    runner: OwnedRunner,
    { isFresh, isFirst }: { isFresh: boolean; isFirst: boolean },
  ): Promise<void> {
    await this.#reserve(runner);
    await enterRecordStep('record.resume');
    let step: 'before' | 'asked' | 'restored' = 'before';
    try {
      const taken = await this.#disks.reattach(this.#live.row, { isFresh });
      const grants = await this.#grants.open(this.#live.row);
      const mayRun = this.#mayRun;
      this.#mayRun = true;
      step = 'asked';
      const vm = await timeStart('resume', () => this.#restore(grants, taken?.workspace), this.#noteStart);
      step = 'restored';
      if (mayRun) await this.#egress.send(grants);
      await enterRecordStep('record.resumed');
      await this.#live.inTurn(() =>
        this.#commitResumed({ ...taken?.disk, ...buildMounted(vm.workspace) }, vm.workspace),
      );
      this.#mayRun = false;
      await this.#egress.noteResumed(grants);
    } catch (error) {
      await this.#disks.giveBack(this.#live.row);
      // If this fails, too, the sandbox counts until its next resume or end.
      const mayRun = step === 'asked' ? mayHaveBegun(error, isFirst) : step === 'restored' || !isFirst;
      await this.#giveUp(mayRun).catch(() => undefined);
      throw this.#disks.explainResume(this.#live.row, error);
    }
  }

  /** A VM that runs, or may run as the runner gave no answer, holds what it was given: the reconciler resolves it. */
  async #giveUp(mayRun: boolean): Promise<void> {
    await this.#live.inTurn(async () => {
      const { status, is_resuming } = this.#live.row;
      if (status === 'running') {
        this.#mayRun = false;
        this.#egress.doubt();
      }
      if (status !== 'hibernated' || mayRun) return;
      if (is_resuming) await this.#live.commit({ is_resuming: false });
      this.#mayRun = false;
    });
  }

  async #restore(grants: readonly OpenGrant[], workspace: VmWorkspace | undefined): Promise<VmInfo> {
    const captureId = this.#live.row.hibernation_id;
    invariant(captureId, 'a hibernated sandbox names its hibernation');
    const egress = this.#grants.buildStart(this.#live.row, grants);
    return this.#vm.restore({ captureId, organization: this.#live.row.organization_id, egress, workspace });
  }

  async #commitResumed(change: SandboxUpdate = {}, mounted?: MountedWorkspace): Promise<void> {
    const { outcome } = findTransition(this.#live.row.status, 'started');
    if (outcome === 'remove_vm') this.#vm.removeLater();
    if (outcome !== 'accept') throw this.#live.refusal('resume');
    const captureId = this.#live.row.hibernation_id;
    const { row, now } = this.#live;
    await this.#live.commit({ ...buildResumed(row, now), ...change }, buildResumedNotes(row, mounted));
    if (captureId !== null) void runUntraced(() => this.#forget(captureId));
  }

  async #forget(captureId: string): Promise<void> {
    await enterRecordStep('record.forget');
    await this.#vm.forgetCapture(captureId);
  }

  /** Resolves a hibernation that failed. Without an answer the outcome is unknown: the reconciler resolves it. */
  async #settleFailed(error: unknown): Promise<void> {
    if (isUnanswered(error)) throw error;
    const isThere = await this.#vm.isThere();
    await this.#live.inTurn(async () => {
      if (this.#live.row.status !== 'running') return;
      if (isThere) await this.#live.commit({ hibernation_id: null });
      else await resolveHibernated(this.#live, this.#vm);
    });
    if (this.#live.row.status !== 'hibernated') throw error;
  }
}

/**
 * Whether a runner that was asked may have begun a resume that ended with this error: `unavailable` is no answer, too, but nothing was
 * begun, and a runner that failed itself may have done anything.
 */
function mayHaveBegun(error: unknown, isFirst: boolean): boolean {
  if (!(error instanceof AppError) || error.code === 'internal') return true;
  if (!isUnanswered(error)) return false;
  return !isFirst || error.code === 'outcome_unknown';
}

const TRIED_ELSEWHERE: ReadonlySet<ErrorCode> = new Set(['capacity', 'snapshot_unusable', 'unavailable']);

/** Whether another runner may resume what this one did not. */
function isTriedElsewhere(error: unknown): boolean {
  return error instanceof AppError && !(error instanceof ElsewhereError) && TRIED_ELSEWHERE.has(error.code);
}

/** Builds the error for a use of the sandbox: nothing of the use was begun, even if the sandbox is resumed later. */
function notResumed(cause: unknown): AppError {
  return new AppError('unavailable', 'the sandbox is hibernated and was not resumed in time; try again', {
    cause,
  });
}
