/** Tables of credentials and of the cursors of egress notes: see tables.ts. */
import type { CredentialEndpoint } from '@coppice/contract';
import type { ColumnType, Insertable, Selectable } from 'kysely';

export interface SandboxCredentialTable {
  sandbox_id: string;
  service: string;
  /** null: any request. */
  endpoints: ColumnType<CredentialEndpoint[] | null, string | null, string | null>;
  /** Sealed by the secret box, bound to organization, sandbox and service. null: `secret_id` has the value. */
  sealed_secret: Buffer | null;
  /** Secret of the organization that has the value. */
  secret_id: string | null;
  /** The last version of it that the audit log says is used. */
  secret_version: number | null;
  updated_at: number;
}

/**
 * Position of a sandbox's egress notes in its audit log: one row for each spool generation of which the runner sent
 * notes.
 */
export interface EgressCursorTable {
  sandbox_id: string;
  /** Generation and number of the last written event, as the runner sent them. */
  generation: string;
  seq: number;
}

export type GrantRow = Selectable<SandboxCredentialTable>;
export type NewGrantRow = Insertable<SandboxCredentialTable>;
