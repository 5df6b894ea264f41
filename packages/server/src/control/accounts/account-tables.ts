/** Tables of organizations, their teams, people and keys: see tables.ts. */
import type { KeyScope } from '@coppice/contract';
import type { Generated, Selectable } from 'kysely';

export interface OrganizationTable {
  id: string;
  name: string;
  region: string;
  created_at: number;
  /** True for the organization that the first start created. Its owners run the installation. */
  is_first: Generated<boolean>;
}

export interface TeamTable {
  id: string;
  organization_id: string;
  name: string;
  created_at: number;
}

/** A team's newest secret keys each audit chain that begins. */
export interface TeamSecretTable {
  id: string;
  team_id: string;
  /** Sealed by the secret box, bound to organization and team. */
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
  /** Public id of the session. */
  id: string;
  user_id: string;
  created_at: number;
  expires_at: number;
  /** Accurate to a minute. */
  last_used_at: number;
  client_address: string;
  user_agent: string;
}

export interface InvitationTable {
  id: string;
  organization_id: string;
  /** The invited address; null if any holder of the token may accept. */
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
  /** Accurate to a minute. */
  last_used_at: Generated<number | null>;
  /** Requested at creation, or set by a rotation: until then both the old key and the new one are valid. */
  expires_at: Generated<number | null>;
  scope: Generated<KeyScope>;
  /** The key reaches only the sandboxes of its own team. Not of a session's key: see auth/session-keys.ts. */
  team_only: Generated<boolean>;
  /** The session whose key this is, which ends with it; null for a key that was created as such. */
  session_id: Generated<string | null>;
}

export type TeamSecretRow = Selectable<TeamSecretTable>;
