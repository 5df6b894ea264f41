/**
 * A VM that goes on from saved state in the place of one that runs, under the same id:
 *
 *   old   runs ───────────────► stands still ─────────────────────► ended, and not reported
 *   new        assembled ─────────────────► wakes ─► its record says "running"
 *
 * That write is the switch. Before it the old VM goes on, whatever fails; after it the new one has the sandbox. It also
 * holds the rollback, so that a runner that was killed knows from the disk whether it was done, and what to answer.
 */
import type { RollbackVm, VmRollback } from '../../lib/protocol/runner-protocol.ts';
import type { Capacity } from '../capacity/capacity.ts';
import type { StepTimer } from '../vm/step-timer.ts';
import { enterStep } from '../vm/steps.ts';
import type { AssembledVm, Blueprint, VmAssembler } from './vm-assembly.ts';
import type { VmDriver } from './vm-driver.ts';
import type { VmRoster } from './vm-roster.ts';

/** How many rollbacks of a sandbox are remembered: one that comes again so late was not sent by a control that lives. */
const MAX_KEPT = 16;

export interface ReplacementParts {
  assembler: VmAssembler;
  capacity: Pick<Capacity, 'reserve' | 'inTurn'>;
  vms: VmRoster;
  /** Makes room for it. */
  giveWay: () => Promise<boolean>;
}

export interface Replacement {
  old: VmDriver;
  /** Claimed for the same sandbox. */
  driver: VmDriver;
  blueprint: Blueprint;
  asked: RollbackVm;
  timer: StepTimer;
}

/** Resolves after the switch, with the old VM still to be ended. */
export async function replaceVm(parts: ReplacementParts, replacement: Replacement): Promise<VmRollback> {
  const { assembler, capacity, giveWay } = parts;
  const { old, driver, blueprint, timer } = replacement;
  await capacity.reserve(driver.unit, blueprint.shape, { giveWay });
  const assembled = await capacity.inTurn({ diskMiB: 0, signal: driver.endAsked }, () =>
    assembler.assemble(driver, blueprint, timer),
  );
  return old.capture(() => takeOver(parts, replacement, assembled));
}

async function takeOver(
  { assembler, vms }: ReplacementParts,
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
    await assembler.wake(assembled, timer);
    // At once: the old VM's end, by itself or by a fault, is the sandbox's no more.
    old.disown();
    vms.enter(driver);
    vms.markCreated(driver.info);
    return rollback;
  } catch (error) {
    await vm.start();
    throw error;
  }
}
