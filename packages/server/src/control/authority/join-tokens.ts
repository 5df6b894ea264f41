/** Tokens with which runners join. SQL has only hashes of their secrets. */
import { createHash, randomBytes } from 'node:crypto';
import { AppError } from '@coppice/contract';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { DATABASE_NOW } from '../ownership/database-time.ts';
import { formatToken } from '../../lib/protocol/join-protocol.ts';
import { Secret } from '../../lib/secret.ts';
import type { Authority } from './authority.ts';

const SECRET_BYTES = 32;
/** Expired ones are kept for this long, so that their error can say why. */
const KEPT_MS = 7 * 86_400_000;

export interface NewToken {
  /** The only runner that may use it. */
  runnerId?: string | undefined;
  validMs: number;
}

/** Makes a token and returns it; it cannot be read again. Throws `not_found` for a runner that does not exist. */
export async function makeToken(
  db: Database,
  authority: Authority,
  { runnerId, validMs }: NewToken,
): Promise<Secret> {
  if (runnerId !== undefined) await assertJoinable(db, runnerId);
  await db
    .deleteFrom('join_tokens')
    .where('expires_at', '<', sql<number>`${DATABASE_NOW} - ${KEPT_MS}::bigint`)
    .execute();
  const secret = new Secret(randomBytes(SECRET_BYTES).toString('base64url'));
  await db
    .insertInto('join_tokens')
    .values({
      secret_hash: hashSecret(secret.reveal()),
      runner_id: runnerId ?? null,
      created_at: DATABASE_NOW,
      expires_at: sql<number>`${DATABASE_NOW} + ${validMs}::bigint`,
    })
    .execute();
  return new Secret(formatToken({ secret, authority: authority.fingerprint }));
}

export interface FoundToken {
  secretHash: string;
  runnerId: string | null;
}

/** Finds a token that may be used now. Throws `unauthorized`, whose message says why it may not. */
export async function getUsableToken(db: Database, secret: string): Promise<FoundToken> {
  const secretHash = hashSecret(secret);
  const row = await db
    .selectFrom('join_tokens')
    .select(['runner_id', 'used_at', sql<boolean>`expires_at <= ${DATABASE_NOW}`.as('is_expired')])
    .where('secret_hash', '=', secretHash)
    .executeTakeFirst();
  const fault =
    row === undefined
      ? 'is not one of this installation'
      : row.used_at !== null
        ? 'has been used'
        : row.is_expired
          ? 'has expired'
          : undefined;
  if (row !== undefined && fault === undefined) return { secretHash, runnerId: row.runner_id };
  throw new AppError(
    'unauthorized',
    `the token ${fault ?? ''}: make a new one with "coppice admin runner token"`,
  );
}

function hashSecret(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}

async function assertJoinable(db: Database, runnerId: string): Promise<void> {
  const row = await db
    .selectFrom('runners')
    .select('revoked_at')
    .where('id', '=', runnerId)
    .executeTakeFirst();
  if (row === undefined)
    throw new AppError('not_found', `there is no runner "${runnerId}"; coppice admin runner list shows them`);
  if (row.revoked_at !== null)
    throw new AppError('invalid_state', `the runner ${runnerId} is revoked for good`);
}
