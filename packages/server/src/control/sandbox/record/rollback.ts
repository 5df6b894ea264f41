/** Builds the row change and the audit entry for a rollback. Pure. */
import type { VmEnd, VmRollback } from '../../../lib/protocol/runner-protocol.ts';
import type { AuditNote } from '../../audit/audit-chain.ts';
import type { SandboxRow, SandboxUpdate } from './sandbox-tables.ts';
import { addUsage } from './usage.ts';

/** Columns of a row without a pending rollback. */
export const NO_ROLLBACK = {
  rollback_id: null,
  rollback_snapshot_id: null,
  rollback_disk_version: null,
} as const;

/** Builds the change for a rollback that the runner has done. The replaced VM is gone, and its usage counts. */
export function buildRolledBack(row: SandboxRow, { replaced_usage }: VmRollback): SandboxUpdate {
  return { ...NO_ROLLBACK, ...addUsage(row, replaced_usage) };
}

/** Builds the audit entry. It names the snapshot that the VM came from according to the runner. */
export function buildRollbackNote({ rollback_id, capture_id }: VmRollback): AuditNote {
  return { event: 'sandbox.rolled_back', data: { snapshot_id: capture_id, rollback_id } };
}

/** Returns the pending rollback of the record if the end of the VM reports that it was done. */
export function findUnheard(
  row: Pick<SandboxRow, 'rollback_id'>,
  end: VmEnd | undefined,
): VmRollback | undefined {
  return end?.rollback?.rollback_id === row.rollback_id ? end?.rollback : undefined;
}
