/** Tables of credentials and of what the runner has told of them: see tables.ts. */
import type { CredentialEndpoint } from '@coppice/contract';
import type { ColumnType, Insertable, Selectable } from 'kysely';

export interface SandboxCredentialTable {
  sandbox_id: string;
  service: string;
  /** null: any request. */
  endpoints: ColumnType<CredentialEndpoint[] | null, string | null, string | null>;
  /** By the secret box, bound to organization, sandbox and service. */
  sealed_secret: Buffer;
  updated_at: number;
}

/** Up to where notes of a sandbox's way out are in its audit log: a row for each spool of a runner that told some. */
export interface EgressCursorTable {
  sandbox_id: string;
  /** Of the runner's event, both. */
  generation: string;
  seq: number;
}

export type GrantRow = Selectable<SandboxCredentialTable>;
export type NewGrantRow = Insertable<SandboxCredentialTable>;
