/**
 * Replaces a running VM by one that continues from saved state, under the same id:
 *
 *   old   runs ───────────────► stopped ──────────────────────────► ended, and not reported
 *   new        assembled ─────────────────► wakes ─► its record says "running"
 *
 * That write is the switch. Before it the old VM continues on any failure; after it the new one has the sandbox. The
 * record also holds the rollback, so a runner started after a kill knows whether it was done, and what to answer.
 */
import { AppError } from '@coppice/contract';
import type { RollbackVm, VmRollback } from '../../lib/protocol/runner-protocol.ts';
import type { Capacity } from '../capacity/capacity.ts';
import type { StepTimer } from '../vm/step-timer.ts';
import { enterStep } from '../vm/steps.ts';
import type { AssembledVm, Blueprint, VmAssembler } from './vm-assembly.ts';
import { RevertedDisk, type DiskForVm } from '../workspace/pending-disk.ts';
import type { Workspaces } from '../workspace/workspaces.ts';
import type { VmDriver } from './vm-driver.ts';
import type { VmRoster } from './vm-roster.ts';

/** Number of rollbacks kept per sandbox. No live control repeats an older one. */
const MAX_KEPT = 16;

export interface ReplacementParts {
  assembler: VmAssembler;
  capacity: Pick<Capacity, 'reserve' | 'inTurn'>;
  vms: VmRoster;
  workspaces: Workspaces;
  /** Ends a warm VM to make room. Returns false when there is none. */
  giveWay: () => Promise<boolean>;
}

export interface Replacement {
  old: VmDriver;
  /** The driver of the new VM, claimed for the same sandbox. */
  driver: VmDriver;
  blueprint: Blueprint;
  asked: RollbackVm;
  timer: StepTimer;
}

/** Resolves after the switch. The caller must still end the old VM. */
export async function replaceVm(parts: ReplacementParts, replacement: Replacement): Promise<VmRollback> {
  const { assembler, capacity, giveWay } = parts;
  const { old, driver, blueprint, timer } = replacement;
  await capacity.reserve(driver.unit, blueprint.shape, { giveWay });
  const assembled = await capacity.inTurn({ diskMiB: 0, signal: driver.endAsked }, () =>
    assembler.assemble(driver, blueprint, { timer, disk: revertedDisk(parts, replacement) }),
  );
  return old.capture(() => takeOver(parts, replacement, assembled));
}

/** The sandbox's persistent disk, as it was at the moment of the capture; undefined without one. */
function revertedDisk({ workspaces }: ReplacementParts, { old, asked }: Replacement): DiskForVm | undefined {
  const { workspace } = old.running;
  const version = asked.workspace?.version;
  if ((workspace === undefined) !== (version === undefined))
    throw new AppError(
      'invalid_request',
      'workspace: must name the disk of the sandbox with the version to roll back to',
    );
  if (workspace === undefined || version === undefined) return undefined;
  return new RevertedDisk(workspaces, workspace, version);
}

async function takeOver(
  { assembler, vms, workspaces }: ReplacementParts,
  { old, driver, asked, timer }: Replacement,
  assembled: AssembledVm,
): Promise<VmRollback> {
  const { vm } = old.running;
  await vm.stop();
  try {
    await enterStep('rollback.replace');
    const rollback = { ...asked, replaced_usage: old.usage };
    assembled.record.replaces = old.unit;
    assembled.record.rollbacks = [...vms.recordOf(old).rollbacks, rollback].slice(-MAX_KEPT);
    await assembler.wake(assembled, { timer });
    // Immediately: from here on the old VM's end, for any reason, is not the sandbox's.
    old.disown();
    const { workspace } = driver;
    if (workspace !== undefined) workspaces.replaced(workspace);
    vms.enter(driver);
    vms.markCreated(driver.info);
    return rollback;
  } catch (error) {
    await vm.start();
    throw error;
  }
}
