import type { Generated } from 'kysely';

/** The authority of the installation, which issues certificates to controls. There is at most one. */
export interface AuthorityTable {
  id: string;
  /** PEM. */
  certificate: string;
  /** Its private key in PEM, sealed with the master key. */
  sealed_key: Buffer;
  created_at: number;
}

/** A token with which one runner may join. Times are Unix milliseconds by PostgreSQL's clock. */
export interface JoinTokenTable {
  /** SHA-256 of its secret. */
  secret_hash: string;
  /** The only runner that may use it, and that may then have a new key; null for any new runner. */
  runner_id: string | null;
  created_at: number;
  expires_at: number;
  used_at: Generated<number | null>;
  /** The runner that has used it. */
  used_by: Generated<string | null>;
}
