import type { AuditEvent } from '@coppice/contract';
import type { Selectable } from 'kysely';

/** Insert-only: a trigger refuses all else. */
export interface AuditEntryTable {
  sandbox_id: string;
  seq: number;
  ts: number;
  event: AuditEvent;
  /** In canonical form, as it was hashed. */
  data: string;
  hmac: string;
}

export type AuditEntryRow = Selectable<AuditEntryTable>;
