import { AppError } from '@coppice/contract';
import type { SandboxRow } from '../record/sandbox-tables.ts';
import { isForkId } from '../record/ids.ts';
import type { AuditLog } from '../../audit/audit-log.ts';

/**
 * Records a child of a fork in the audit log of its parent. Call before the start of the child is committed, as the
 * service may be killed in between. Does nothing for other sandboxes, or if the parent has ended meanwhile: its log is
 * closed.
 */
export async function noteForked(
  audit: AuditLog,
  { id, image, parent_id, origin }: Pick<SandboxRow, 'id' | 'image' | 'parent_id' | 'origin'>,
): Promise<void> {
  if (parent_id === null || !isForkId(origin)) return;
  try {
    await audit.append(parent_id, { event: 'sandbox.forked', data: { parent: parent_id, image, child: id } });
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== 'invalid_state') throw error;
  }
}
