/** How a sandbox that was just inserted comes to run: created, restored, or as a child of a fork. */
import { AppError, findTransition, type SandboxRecord } from '@coppice/contract';
import type { AuditLog } from '../../audit/audit-log.ts';
import { noteForked } from './note-forked.ts';
import type { SandboxRow } from '../record/sandbox-tables.ts';
import { takenBack } from '../../placement/runner-error.ts';
import { buildCreatedNote } from '../record/new-row.ts';
import { enterRecordStep } from '../record/steps.ts';
import type { LiveSandbox } from './live-sandbox.ts';
import type { SandboxVm } from './sandbox-vm.ts';

/** Brings the VM up; resolves when a first command could run. */
export type StartVm = (vm: SandboxVm) => Promise<{ image: string }>;

export class SandboxBoot {
  readonly #live: LiveSandbox;
  readonly #vm: SandboxVm;
  readonly #audit: AuditLog;
  #isUnderWay = false;
  #hasFailed = false;

  constructor(live: LiveSandbox, vm: SandboxVm, audit: AuditLog) {
    this.#live = live;
    this.#vm = vm;
    this.#audit = audit;
  }

  /**
   * `creating` with nobody who creates it: the control that did is gone, or could not commit how it went. Whoever asked
   * was then told that the create failed, so it must not run even if that was committed.
   */
  get isInterrupted(): boolean {
    const { status } = this.#live.row;
    return !this.#isUnderWay && (status === 'creating' || (this.#hasFailed && status === 'running'));
  }

  async run(start: StartVm): Promise<SandboxRecord> {
    const startedAtMs = this.#live.now.bootMs;
    this.#isUnderWay = true;
    try {
      await enterRecordStep('record.ask');
      const { image } = await this.#start(start);
      await noteForked(this.#audit, this.#live.row);
      await enterRecordStep('record.start');
      const createMs = Math.round(this.#live.now.bootMs - startedAtMs);
      const record = await this.#live.inTurn(() => this.#commitStart(image, createMs));
      await enterRecordStep('record.answer');
      return record;
    } catch (error) {
      this.#hasFailed = true;
      throw error;
    } finally {
      this.#isUnderWay = false;
    }
  }

  /** Ends a boot that nobody finishes. */
  resolveInterrupted(): Promise<void> {
    return this.#live.inTurn(async () => {
      if (!this.isInterrupted) return;
      const end = await this.#vm.remove();
      const event = this.#live.row.status === 'creating' ? 'start_failed' : 'lost';
      await this.#live.handleEvent(event, this.#hasFailed ? 'create_failed' : 'control_restarted', end);
    });
  }

  async #start(start: StartVm): Promise<{ image: string }> {
    try {
      return await start(this.#vm);
    } catch (error) {
      await this.#live.inTurn(() => this.#live.handleEvent('start_failed', 'create_failed'));
      this.#vm.removeLater();
      if (this.#live.row.status === 'destroyed') throw endedMeanwhile(this.#live.row, error);
      throw takenBack(error, 'the create');
    }
  }

  async #commitStart(image: string, createMs: number): Promise<SandboxRecord> {
    const transition = findTransition(this.#live.row.status, 'started');
    if (transition.outcome === 'remove_vm') {
      this.#vm.removeLater();
      throw endedMeanwhile(this.#live.row);
    }
    if (transition.outcome !== 'accept') throw this.#live.refusal('use');
    const { now, row } = this.#live;
    const change = {
      status: transition.to,
      image,
      create_ms: createMs,
      last_active_at: now.wallMs,
      last_seen_at: now.wallMs,
      last_seen_boot_ms: now.bootMs,
    };
    await this.#live.commit(change, buildCreatedNote({ ...row, image }));
    return this.#live.record;
  }
}

/** By request, or because its VM was lost before it was committed that it runs. */
function endedMeanwhile({ status, status_reason }: SandboxRow, cause?: unknown): AppError {
  if (status === 'destroyed')
    return new AppError('invalid_state', 'the sandbox was destroyed while it was being created', { cause });
  const message = `the sandbox was lost while it was being created (${status_reason}); try again`;
  return new AppError('guest_unreachable', message, { cause });
}
