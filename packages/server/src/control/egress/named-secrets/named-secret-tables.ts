/** Table of the named secrets of organizations: see tables.ts. */
import type { Selectable } from 'kysely';

export interface NamedSecretTable {
  id: string;
  organization_id: string;
  /** Unique in the organization. */
  name: string;
  /** Sealed by the secret box, bound to organization and name. */
  sealed_value: Buffer;
  /** 1 for the first value, and one more for each later one. */
  version: number;
  created_at: number;
  updated_at: number;
}

export type NamedSecretRow = Selectable<NamedSecretTable>;
