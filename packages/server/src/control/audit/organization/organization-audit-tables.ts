/** Tables of the audit logs of organizations: see tables.ts. */
import type { OrganizationAuditEvent } from '@coppice/contract';
import type { Selectable } from 'kysely';

/** The newest secret of an organization keys the next entry. */
export interface OrganizationAuditSecretTable {
  id: string;
  organization_id: string;
  /** Sealed by the secret box, bound to organization and id. */
  sealed_secret: Buffer;
  created_at: number;
}

/** Insert-only: a trigger refuses all else. */
export interface OrganizationAuditEntryTable {
  organization_id: string;
  seq: number;
  ts: number;
  audit_key_id: string;
  event: OrganizationAuditEvent;
  /** In canonical form, as it was hashed; so is `data`. */
  actor: string;
  data: string;
  hmac: string;
}

export type OrganizationAuditRow = Selectable<OrganizationAuditEntryTable>;
