/** Tables of organizations, their teams, people and keys: see tables.ts. */
import type { KeyScope } from '@coppice/contract';
import type { Generated, Selectable } from 'kysely';

export interface OrganizationTable {
  id: string;
  name: string;
  region: string;
  created_at: number;
  /** Made by the first start: its owners run the installation. */
  is_first: Generated<boolean>;
}

export interface TeamTable {
  id: string;
  organization_id: string;
  name: string;
  created_at: number;
}

/** The newest of a team keys the audit chains that begin. */
export interface TeamSecretTable {
  id: string;
  team_id: string;
  /** By the secret box, bound to organization and team. */
  sealed_secret: Buffer;
  created_at: number;
}

export interface UserTable {
  id: string;
  /** In lower case. */
  email: string;
  name: string;
  password_hash: string;
  created_at: number;
}

export interface MembershipTable {
  organization_id: string;
  user_id: string;
  role: 'owner' | 'member';
  created_at: number;
}

export interface TeamMemberTable {
  team_id: string;
  user_id: string;
  created_at: number;
}

export interface LoginSessionTable {
  /** SHA-256 of the cookie's token; the token itself is stored nowhere. */
  sha256: Buffer;
  /** What its owner calls it by. */
  id: string;
  user_id: string;
  created_at: number;
  expires_at: number;
  /** To the minute. */
  last_used_at: number;
  client_address: string;
  user_agent: string;
}

export interface InvitationTable {
  id: string;
  organization_id: string;
  /** Whom it is for; null for whoever has its token. */
  email: string | null;
  role: 'owner' | 'member';
  /** SHA-256 of its token. */
  sha256: Buffer;
  created_at: number;
  expires_at: number | null;
  accepted_at: number | null;
}

export interface ApiKeyTable {
  id: string;
  organization_id: string;
  team_id: string;
  name: Generated<string>;
  /** SHA-256 of the whole key; the key itself is stored nowhere. */
  sha256: Buffer;
  last4: string;
  created_at: number;
  revoked_at: number | null;
  /** To the minute. */
  last_used_at: Generated<number | null>;
  /** As it was asked for, or set by a rotation: until then the old key and the new one are good. */
  expires_at: Generated<number | null>;
  scope: Generated<KeyScope>;
  /** It sees only what is its team's. */
  team_only: Generated<boolean>;
}

export type TeamSecretRow = Selectable<TeamSecretTable>;
