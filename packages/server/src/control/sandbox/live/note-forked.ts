import { AppError } from '@coppice/contract';
import type { SandboxRow } from '../record/sandbox-tables.ts';
import { isForkId } from '../record/ids.ts';
import type { AuditLog } from '../../audit/audit-log.ts';

/**
 * Writes a child that a fork has made into the log of its parent, before the child becomes a sandbox like any other: the
 * service may be killed in between. Nothing for what is no child. A parent that has ended meanwhile takes no more entries.
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
