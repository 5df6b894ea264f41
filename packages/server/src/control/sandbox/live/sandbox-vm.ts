/** Creates, saves, copies and removes the VM of one sandbox at its runner, even if the runner restarts meanwhile. */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { EgressCounters, VmEgress } from '../../../lib/protocol/egress-protocol.ts';
import type {
  CaptureInfo,
  ForkedVms,
  ForkVm,
  RollbackVm,
  VmEnd,
  VmInfo,
  VmRollback,
} from '../../../lib/protocol/runner-protocol.ts';
import { runUntraced } from '../../../lib/tracing/tracing.ts';
import type { Restore } from '../../placement/runner-captures.ts';
import type { NewVm, RunnerClient } from '../../placement/runner-client.ts';
import { insist } from '../../placement/insist.ts';

export interface VmDeadlines {
  /** Deadline of a whole create. */
  createDeadlineMs: number;
  /** Deadline of a whole fork. */
  forkDeadlineMs: number;
  /** Deadline of a whole snapshot, hibernation, resume, restore or rollback. */
  captureDeadlineMs: number;
  /** Longest outage of the runner that an operation waits for. */
  runnerOutageDeadlineMs: number;
}

export interface SandboxVmParts {
  runner: RunnerClient;
  log: Logger;
  limits: VmDeadlines;
}

export class SandboxVm {
  readonly #id: string;
  #runner: RunnerClient;
  readonly #log: Logger;
  readonly #limits: VmDeadlines;

  constructor(id: string, { runner, log, limits }: SandboxVmParts) {
    this.#id = id;
    this.#runner = runner;
    this.#log = log;
    this.#limits = limits;
  }

  /** Later requests go to this runner. Call only while no VM of the sandbox exists. */
  moveTo(runner: RunnerClient): void {
    this.#runner = runner;
  }

  create(vm: NewVm): Promise<VmInfo> {
    return this.#insist(this.#limits.createDeadlineMs, (leftMs) =>
      this.#runner.createVm(this.#id, vm, leftMs),
    );
  }

  /** Starts the VM from a capture, which is kept. Throws `snapshot_unusable` if the capture is gone. */
  async restore(restore: Restore): Promise<VmInfo> {
    try {
      return await this.#insistOnCapture((leftMs) =>
        this.#runner.captures.restore(this.#id, restore, leftMs),
      );
    } catch (error) {
      throw isNotFound(error) ? captureGone(error) : error;
    }
  }

  /** Resolves when the policy is in force. */
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

  fork(fork: ForkVm): Promise<ForkedVms> {
    const { forkDeadlineMs } = this.#limits;
    return this.#insist(forkDeadlineMs, (leftMs) => this.#runner.captures.fork(this.#id, fork, leftMs));
  }

  /** Returns undefined if the runner knows no such VM. */
  async remove(): Promise<VmEnd | undefined> {
    try {
      return await this.#runner.deleteVm(this.#id);
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw error;
    }
  }

  /**
   * Removes the VM in the background. If that fails, the reconciler finds a VM without a live record and removes it.
   */
  removeLater(): void {
    runUntraced(() => this.remove()).catch((error: unknown) =>
      this.#log.warn({ err: error }, 'a VM is left to the reconciler'),
    );
  }

  /** Returns the hibernation with this id if the runner holds it. */
  async findHibernation(captureId: string): Promise<CaptureInfo | undefined> {
    const captures = await this.#runner.captures.list();
    return captures.find(({ id, vm_id }) => id === captureId && vm_id === this.#id);
  }

  async isThere(): Promise<boolean> {
    return (await this.#runner.listVms()).some((vm) => vm.id === this.#id);
  }

  /** Removes a capture. If that fails, the reconciler finds a capture that no record names and removes it. */
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

  #insist<T>(deadlineMs: number, attempt: (leftMs: number) => Promise<T>): Promise<T> {
    const onRepeat = (): void =>
      this.#log.warn('the runner gave no answer to an operation; the request is repeated');
    return insist({ deadlineMs, outageDeadlineMs: this.#limits.runnerOutageDeadlineMs, onRepeat }, attempt);
  }
}

export function isNotFound(error: unknown): boolean {
  return error instanceof AppError && error.code === 'not_found';
}

export function captureGone(cause: unknown): AppError {
  return new AppError(
    'snapshot_unusable',
    'the files of the snapshot or hibernation are gone from this machine, and not in the object store',
    {
      cause,
    },
  );
}
