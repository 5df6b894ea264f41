/** Starts a sandbox that was just inserted: as a create, as a restore, or as a child of a fork. */
import { AppError, findTransition, type SandboxRecord } from '@coppice/contract';
import type { VmEgress } from '../../../lib/protocol/egress-protocol.ts';
import type { VmInfo } from '../../../lib/protocol/runner-protocol.ts';
import type { AuditLog } from '../../audit/audit-log.ts';
import type { SandboxDisks } from '../../disks/sandbox-disks.ts';
import type { Grant } from '../../egress/grant.ts';
import type { Grants } from '../../egress/grants.ts';
import type { NewVm } from '../../placement/runner-client.ts';
import type { SandboxRow } from '../record/sandbox-tables.ts';
import { ElsewhereError } from '../../placement/elsewhere.ts';
import { takenBack } from '../../placement/runner-error.ts';
import { buildAttachedNotes, buildMounted } from '../record/disk-notes.ts';
import { isForkId } from '../record/ids.ts';
import { buildCreatedNote } from '../record/new-row.ts';
import { changeState } from '../record/state-change.ts';
import { enterRecordStep } from '../record/steps.ts';
import type { LiveSandbox } from './live-sandbox.ts';
import type { SandboxVm } from './sandbox-vm.ts';
import { timeStart, type NoteStart, type StartKind } from './start-note.ts';

export interface BootParts {
  vm: SandboxVm;
  grants: Grants;
  audit: AuditLog;
  disks: SandboxDisks;
  noteStart: NoteStart;
}

export class SandboxBoot {
  readonly #live: LiveSandbox;
  readonly #parts: BootParts;
  #isUnderWay = false;
  #hasFailed = false;

  constructor(live: LiveSandbox, parts: BootParts) {
    this.#live = live;
    this.#parts = parts;
  }

  /**
   * True if the sandbox is `creating` but no create is under way: the control that began it has died, or could not
   * commit the outcome. Its caller received an error, so the sandbox must not run, even if its start was committed.
   */
  get isInterrupted(): boolean {
    const { status } = this.#live.row;
    return !this.#isUnderWay && (status === 'creating' || (this.#hasFailed && status === 'running'));
  }

  /** Starts a new VM from an image. Resolves when a first command can run. */
  create(wanted: Omit<NewVm, 'egress' | 'workspace'>, grants: readonly Grant[]): Promise<SandboxRecord> {
    return this.#run('create', async () => {
      const egress = await this.#grant(grants);
      const workspace = await this.#parts.disks.mount(this.#live.row);
      return this.#parts.vm.create({
        ...wanted,
        ...(egress === undefined ? {} : { egress }),
        ...(workspace === undefined ? {} : { workspace }),
      });
    });
  }

  /** Starts a VM from a capture. Resolves when the guest runs. */
  restore(captureId: string, grants: readonly Grant[]): Promise<SandboxRecord> {
    return this.#run('restore', async () => {
      const egress = await this.#grant(grants);
      const workspace = await this.#parts.disks.mount(this.#live.row, { asCaptured: true });
      return this.#parts.vm.restore({
        captureId,
        organization: this.#live.row.organization_id,
        egress,
        workspace,
      });
    });
  }

  /** Waits for the VM that a fork of the parent makes. */
  join(takeVm: () => Promise<VmInfo>): Promise<SandboxRecord> {
    return this.#run('fork', takeVm);
  }

  /** Stores the secrets that the sandbox may use. Resolves with the part that the runner must know. */
  async #grant(grants: readonly Grant[]): Promise<VmEgress | undefined> {
    await this.#parts.grants.add(this.#live.row, grants);
    const { row } = this.#live;
    // Without any there is nothing to read.
    const stored = grants.length === 0 ? [] : undefined;
    return this.#parts.grants.buildStart(row, await this.#parts.grants.open(row, stored));
  }

  async #run(kind: StartKind, start: () => Promise<VmInfo>): Promise<SandboxRecord> {
    const startedAtMs = this.#live.now.bootMs;
    this.#isUnderWay = true;
    try {
      await enterRecordStep('record.ask');
      const vm = await this.#start(() => timeStart(kind, start, this.#parts.noteStart));
      await this.#noteForked();
      await enterRecordStep('record.start');
      const createMs = Math.round(this.#live.now.bootMs - startedAtMs);
      const record = await this.#live.inTurn(() => this.#commitStart(vm, createMs));
      await enterRecordStep('record.answer');
      return record;
    } catch (error) {
      this.#hasFailed = true;
      throw keptHere(error);
    } finally {
      this.#isUnderWay = false;
    }
  }

  /** Ends the sandbox of an interrupted boot. */
  resolveInterrupted(): Promise<void> {
    return this.#live.inTurn(async () => {
      if (!this.isInterrupted) return;
      const end = await this.#parts.vm.remove();
      await this.#live.end('start_failed', this.#hasFailed ? 'create_failed' : 'control_restarted', end);
    });
  }

  /**
   * Records a child of a fork in the audit log of its parent, before its start is committed, as the service may be
   * killed in between. Does nothing if the parent has ended meanwhile: its log is closed.
   */
  async #noteForked(): Promise<void> {
    const { id, image, parent_id, origin } = this.#live.row;
    if (parent_id === null || !isForkId(origin)) return;
    const note = { event: 'sandbox.forked', data: { parent: parent_id, image, child: id } } as const;
    try {
      await this.#parts.audit.append(parent_id, note);
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== 'invalid_state') throw error;
    }
  }

  async #start(start: () => Promise<VmInfo>): Promise<VmInfo> {
    try {
      return await start();
    } catch (error) {
      await this.#live.inTurn(() => this.#live.end('start_failed', 'create_failed'));
      this.#parts.vm.removeLater();
      if (this.#live.row.status === 'destroyed') throw endedMeanwhile(this.#live.row, error);
      throw takenBack(error, 'the create');
    }
  }

  async #commitStart({ image, workspace }: VmInfo, createMs: number): Promise<SandboxRecord> {
    const { outcome } = findTransition(this.#live.row.status, 'started');
    if (outcome === 'remove_vm') {
      this.#parts.vm.removeLater();
      throw endedMeanwhile(this.#live.row);
    }
    if (outcome !== 'accept') throw this.#live.refusal('use');
    const { now, row } = this.#live;
    const change = {
      ...changeState(row.status, 'started'),
      ...buildMounted(workspace),
      image,
      create_ms: createMs,
      last_active_at: now.wallMs,
      last_seen_at: now.wallMs,
      last_seen_boot_ms: now.bootMs,
    };
    const notes = [buildCreatedNote({ ...row, image }), ...buildAttachedNotes(row, workspace)];
    await this.#live.commit(change, notes);
    return this.#live.record;
  }
}

/** Converts an error for which the request would be forwarded, and be carried out twice: its record exists. */
function keptHere(error: unknown): unknown {
  if (!(error instanceof ElsewhereError)) return error;
  const message = 'a runner that the sandbox needs belongs to another control now; try again';
  return new AppError('unavailable', message, { cause: error });
}

/** Builds the error for a sandbox that was destroyed by request, or lost its VM, before its start was committed. */
function endedMeanwhile({ status, status_reason }: SandboxRow, cause?: unknown): AppError {
  if (status === 'destroyed')
    return new AppError('invalid_state', 'the sandbox was destroyed while it was being created', { cause });
  const message = `the sandbox was lost while it was being created (${status_reason}); try again`;
  return new AppError('guest_unreachable', message, { cause });
}
