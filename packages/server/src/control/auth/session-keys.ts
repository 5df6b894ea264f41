/**
 * API keys of sessions: with them the pages of the service call `/v1` for a signed-in person, and store no key. A session
 * has one for each team that the person opens. It is derived, so that a reload or a second tab gets the same one:
 *
 *     HKDF-SHA256(token of the cookie, salt: master key, info: team) ─► key ─► its SHA-256 in SQL, with the session's id
 *
 * The token is stored nowhere but in the browser: the database and the master key together give no key. After a rotation of the
 * master key a session gets another key; that from before stays active until the session ends.
 *
 * Its rights are those that the person has when it is used: see isActiveKey and isTeamOnly in api-key-store.ts.
 */
import { hkdfSync } from 'node:crypto';
import { AppError, buildApiKey } from '@coppice/contract';
import type { Owner } from '../accounts/organizations/organization-store.ts';
import type { Database } from '../db/database.ts';
import { findActiveKey, newKeyRow, type ActiveKey } from './api-key-store.ts';
import { hashApiKey } from './hash-api-key.ts';

const NAME = 'session';

/** The session of a request, with the token of its cookie. */
export interface TokenOfSession {
  id: string;
  token: string;
}

export interface SessionKeysParts {
  db: Database;
  region: string;
  masterKey: Buffer;
}

export interface KeyOfSession extends ActiveKey {
  key: string;
  /** End of the session. */
  expiresAt: number;
}

export class SessionKeys {
  readonly #db: Database;
  readonly #region: string;
  readonly #masterKey: Buffer;

  constructor({ db, region, masterKey }: SessionKeysParts) {
    this.#db = db;
    this.#region = region;
    this.#masterKey = masterKey;
  }

  /**
   * Returns the session's key of a team, and stores its hash if there is none yet. Throws `unauthorized` if the session has
   * ended meanwhile, and `forbidden` if the person has left the team meanwhile.
   */
  async ensure(session: TokenOfSession, owner: Owner): Promise<KeyOfSession> {
    const key = this.#derive(session.token, owner.teamId);
    return this.#db.transaction().execute(async (transaction) => {
      const expiresAt = await holdSession(transaction, session.id);
      await transaction
        .insertInto('api_keys')
        .values({ ...newKeyRow(owner, key), name: NAME, session_id: session.id })
        .onConflict((conflict) => conflict.column('sha256').doNothing())
        .execute();
      const found = await findActiveKey(transaction, hashApiKey(key));
      if (found === undefined)
        throw new AppError(
          'forbidden',
          'only a member of the team, or an owner of the organization, may do this',
        );
      return { ...found, key, expiresAt };
    });
  }

  #derive(token: string, teamId: string): string {
    let round = 0;
    return buildApiKey(this.#region, (size) => {
      round += 1;
      const info = `coppice session key: ${teamId} ${round}`;
      return new Uint8Array(hkdfSync('sha256', token, this.#masterKey, info, size));
    });
  }
}

/** Keeps the session from ending until the transaction ends: a key must not be stored for one that has just ended. */
async function holdSession(transaction: Database, id: string): Promise<number> {
  const row = await transaction
    .selectFrom('login_sessions')
    .select('expires_at')
    .where('id', '=', id)
    .forKeyShare()
    .executeTakeFirst();
  if (row === undefined) throw new AppError('unauthorized', 'not signed in: the session has ended');
  return row.expires_at;
}
