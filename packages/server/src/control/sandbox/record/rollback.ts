/** What is written when a sandbox is rolled back. Pure. */
import type { VmEnd, VmRollback } from '../../../lib/protocol/runner-protocol.ts';
import type { AuditNote } from '../../audit/audit-chain.ts';
import type { SandboxRow, SandboxUpdate } from './sandbox-tables.ts';
import { addUsage } from './usage.ts';

/** Nothing is to be found out. */
export const NO_ROLLBACK = { rollback_id: null, rollback_snapshot_id: null } as const;

/** The runner has done it: the VM that there was before is gone. */
export function buildRolledBack(row: SandboxRow, { replaced_usage }: VmRollback): SandboxUpdate {
  return { ...NO_ROLLBACK, ...addUsage(row, replaced_usage) };
}

/** Names the snapshot that the runner says the VM came from. */
export function buildRollbackNote({ rollback_id, capture_id }: VmRollback): AuditNote {
  return { event: 'sandbox.rolled_back', data: { snapshot_id: capture_id, rollback_id } };
}

/** The rollback that the record waits for, when the end of the VM tells that it was done. */
export function findUnheard(
  row: Pick<SandboxRow, 'rollback_id'>,
  end: VmEnd | undefined,
): VmRollback | undefined {
  return end?.rollback?.rollback_id === row.rollback_id ? end?.rollback : undefined;
}
