/** The VM of one sandbox at its runner: made, saved, copied and removed, while the runner may restart in the middle of it. */
import { setTimeout as delay } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { EgressCounters, VmEgress } from '../../../lib/protocol/egress-protocol.ts';
import type {
  CaptureInfo,
  ForkedVms,
  RollbackVm,
  VmEnd,
  VmInfo,
  VmRollback,
} from '../../../lib/protocol/runner-protocol.ts';
import type { NewVm, RunnerClient } from '../../placement/runner-client.ts';
import { isUnanswered } from '../../placement/runner-error.ts';

const RETRY_DELAY_MS = 250;

export interface VmDeadlines {
  /** Whole create. */
  createDeadlineMs: number;
  /** Whole fork. */
  forkDeadlineMs: number;
  /** Whole snapshot, hibernation, resume, restore or rollback. */
  captureDeadlineMs: number;
  /** How long the runner may be away. */
  runnerOutageDeadlineMs: number;
}

export interface SandboxVmParts {
  runner: RunnerClient;
  log: Logger;
  limits: VmDeadlines;
}

export class SandboxVm {
  readonly #id: string;
  readonly #runner: RunnerClient;
  readonly #log: Logger;
  readonly #limits: VmDeadlines;

  constructor(id: string, { runner, log, limits }: SandboxVmParts) {
    this.#id = id;
    this.#runner = runner;
    this.#log = log;
    this.#limits = limits;
  }

  create(vm: NewVm): Promise<VmInfo> {
    return this.#insist(this.#limits.createDeadlineMs, (leftMs) =>
      this.#runner.createVm(this.#id, vm, leftMs),
    );
  }

  /** Brings it up from a capture, which is kept; AppError `snapshot_unusable` when that is gone. */
  async restore(captureId: string, egress?: VmEgress): Promise<VmInfo> {
    try {
      return await this.#insistOnCapture((leftMs) =>
        this.#runner.captures.restore(this.#id, { captureId, egress }, leftMs),
      );
    } catch (error) {
      throw isNotFound(error) ? captureGone(error) : error;
    }
  }

  /** Resolves when it is in force. */
  setEgress(egress: VmEgress): Promise<void> {
    return this.#runner.setEgress(this.#id, egress);
  }

  getEgressCounters(): Promise<EgressCounters> {
    return this.#runner.getEgressCounters(this.#id);
  }

  snapshot(captureId: string): Promise<CaptureInfo> {
    return this.#insistOnCapture((leftMs) => this.#runner.captures.snapshot(this.#id, captureId, leftMs));
  }

  hibernate(captureId: string): Promise<CaptureInfo> {
    return this.#insistOnCapture((leftMs) => this.#runner.captures.hibernate(this.#id, captureId, leftMs));
  }

  rollBack(rollback: RollbackVm): Promise<VmRollback> {
    return this.#insistOnCapture((leftMs) => this.#runner.captures.rollBack(this.#id, rollback, leftMs));
  }

  fork(children: string[]): Promise<ForkedVms> {
    const { forkDeadlineMs } = this.#limits;
    return this.#insist(forkDeadlineMs, (leftMs) => this.#runner.captures.fork(this.#id, children, leftMs));
  }

  /** Undefined when the runner knows no such VM. */
  async remove(): Promise<VmEnd | undefined> {
    try {
      return await this.#runner.deleteVm(this.#id);
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw error;
    }
  }

  /** If it fails, the reconciler finds a VM without a live record and removes it. */
  removeLater(): void {
    this.remove().catch((error: unknown) => this.#log.warn({ err: error }, 'a VM is left to the reconciler'));
  }

  /** The hibernation by this id, if the runner holds it. */
  async findHibernation(captureId: string): Promise<CaptureInfo | undefined> {
    const captures = await this.#runner.captures.list();
    return captures.find(({ id, vm_id }) => id === captureId && vm_id === this.#id);
  }

  async isThere(): Promise<boolean> {
    return (await this.#runner.listVms()).some((vm) => vm.id === this.#id);
  }

  /** If it fails, the reconciler finds a capture that no record names and removes it. */
  async forgetCapture(captureId: string): Promise<void> {
    try {
      await this.#runner.captures.remove(captureId);
    } catch (error) {
      this.#log.warn({ err: error, capture_id: captureId }, 'a capture is left to the reconciler');
    }
  }

  #insistOnCapture<T>(attempt: (leftMs: number) => Promise<T>): Promise<T> {
    return this.#insist(this.#limits.captureDeadlineMs, attempt);
  }

  /**
   * What the runner has begun goes on when the connection breaks, and is joined by asking again with the same ids: a
   * short outage is not seen by the caller. Throws `outcome_unknown` when one of the attempts may have reached the runner.
   */
  async #insist<T>(deadlineMs: number, attempt: (leftMs: number) => Promise<T>): Promise<T> {
    const end = performance.now() + deadlineMs;
    let outageEnd: number | undefined;
    let unheard: AppError | undefined;
    for (;;) {
      const attemptedAt = performance.now();
      try {
        return await attempt(Math.max(1, end - attemptedAt));
      } catch (error) {
        if (!isUnanswered(error)) throw error;
        if (error.code === 'outcome_unknown') unheard = error;
        // An attempt that lasted had reached the runner: the outage begins with its end.
        if (performance.now() - attemptedAt > 2 * RETRY_DELAY_MS) outageEnd = undefined;
        outageEnd ??= performance.now() + this.#limits.runnerOutageDeadlineMs;
        if (performance.now() > Math.min(end, outageEnd)) throw unheard ?? error;
        this.#log.warn('the runner went away in the middle of an operation; asking again');
        await delay(RETRY_DELAY_MS);
      }
    }
  }
}

export function isNotFound(error: unknown): boolean {
  return error instanceof AppError && error.code === 'not_found';
}

export function captureGone(cause: unknown): AppError {
  return new AppError('snapshot_unusable', 'the files of what was saved are gone from this machine', {
    cause,
  });
}
