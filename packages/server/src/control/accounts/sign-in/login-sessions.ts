/**
 * Sessions of people who are signed in. The browser holds a token of 256 random bits, the database its SHA-256. A
 * session ends two weeks after its last use, and at the latest 90 days after its start.
 */
import { createHash, randomBytes } from 'node:crypto';
import { AppError, type AuditActor, type SessionRecord } from '@coppice/contract';
import { sql } from 'kysely';
import { newId } from '../../../lib/new-id.ts';
import type { OrganizationAudit } from '../../audit/organization/organization-audit.ts';
import type { Database } from '../../db/database.ts';

const TOKEN_BYTES = 32;
const DAY_MS = 86_400_000;
const IDLE_MS = 14 * DAY_MS;
const LONGEST_MS = 90 * DAY_MS;
/** Uses of a session are stored at most this often. */
const USE_WRITTEN_EVERY_MS = 60_000;
const MAX_USER_AGENT_LENGTH = 200;

/** The client that begins a session. */
export interface SessionOrigin {
  clientAddress: string;
  userAgent: string;
}

export interface LoginSession {
  id: string;
  userId: string;
  expiresAt: number;
  /** True if this use has moved the expiry, so that the browser's cookie must be renewed. */
  isExtended: boolean;
}

export interface BegunSession {
  token: string;
  expiresAt: number;
}

export interface LoginSessionsParts {
  db: Database;
  audit: OrganizationAudit;
  now: () => number;
}

export class LoginSessions {
  readonly #db: Database;
  readonly #audit: OrganizationAudit;
  readonly #now: () => number;

  constructor({ db, audit, now }: LoginSessionsParts) {
    this.#db = db;
    this.#audit = audit;
    this.#now = now;
  }

  async begin(userId: string, { clientAddress, userAgent }: SessionOrigin): Promise<BegunSession> {
    const token = randomBytes(TOKEN_BYTES).toString('base64url');
    const now = this.#now();
    const expiresAt = now + IDLE_MS;
    const row = {
      sha256: hashToken(token),
      id: newId('ses'),
      user_id: userId,
      created_at: now,
      expires_at: expiresAt,
      last_used_at: now,
      client_address: clientAddress,
      user_agent: userAgent.slice(0, MAX_USER_AGENT_LENGTH),
    };
    const by: AuditActor = { type: 'user', id: userId, address: clientAddress };
    await this.#db.transaction().execute(async (transaction) => {
      await transaction.insertInto('login_sessions').values(row).execute();
      const notes = [{ event: 'session.started' as const, data: { session_id: row.id } }];
      await this.#audit.writeForMember(transaction, userId, { by, notes });
    });
    return { token, expiresAt };
  }

  /** Returns the session of a token and extends it. Returns undefined if there is none or it has expired. */
  async use(token: string): Promise<LoginSession | undefined> {
    const sha256 = hashToken(token);
    const now = this.#now();
    const row = await this.#db
      .selectFrom('login_sessions')
      .select(['id', 'user_id', 'created_at', 'expires_at', 'last_used_at'])
      .where('sha256', '=', sha256)
      .where('expires_at', '>', now)
      .executeTakeFirst();
    if (row === undefined) return undefined;
    const session = { id: row.id, userId: row.user_id };
    if (now - row.last_used_at < USE_WRITTEN_EVERY_MS)
      return { ...session, expiresAt: row.expires_at, isExtended: false };
    const expiresAt = Math.min(now + IDLE_MS, row.created_at + LONGEST_MS);
    await this.#db
      .updateTable('login_sessions')
      .set({ last_used_at: now, expires_at: expiresAt })
      .where('sha256', '=', sha256)
      .execute();
    return { ...session, expiresAt, isExtended: true };
  }

  /**
   * Extends the sessions whose keys were used, given when. `last_used_at` stays that of the cookie, which is renewed when that
   * time is old.
   */
  async extendByKeys(usedAt: ReadonlyMap<string, number>): Promise<void> {
    const ids = [...usedAt.keys()];
    const times = [...usedAt.values()];
    // A session has keys of several teams. One that expired before the use stays so. Nothing is waited for, as the end of
    // several sessions locks them in another order.
    await sql`
      UPDATE login_sessions SET
        expires_at = greatest(expires_at, least(used.at + ${IDLE_MS}::bigint, created_at + ${LONGEST_MS}::bigint))
      FROM (
        SELECT login_sessions.id, uses.at FROM (
          SELECT session_id, max(at) AS at
          FROM unnest(${ids}::text[], ${times}::bigint[]) AS each (key_id, at) JOIN api_keys ON api_keys.id = key_id
          WHERE session_id IS NOT NULL GROUP BY session_id
        ) AS uses
        JOIN login_sessions ON login_sessions.id = uses.session_id AND login_sessions.expires_at > uses.at
        FOR NO KEY UPDATE OF login_sessions SKIP LOCKED
      ) AS used
      WHERE login_sessions.id = used.id`.execute(this.#db);
  }

  /** Lists the person's sessions, newest first. */
  async list(userId: string, currentId: string): Promise<SessionRecord[]> {
    const rows = await this.#db
      .selectFrom('login_sessions')
      .selectAll()
      .select((where) =>
        where
          .selectFrom('api_keys')
          .select(({ fn }) => fn.max('api_keys.last_used_at').as('used_at'))
          .whereRef('api_keys.session_id', '=', 'login_sessions.id')
          .as('key_used_at'),
      )
      .where('user_id', '=', userId)
      .where('expires_at', '>', this.#now())
      .orderBy('created_at', 'desc')
      .orderBy('id')
      .execute();
    return rows.map((row) => ({
      id: row.id,
      created_at: toTime(row.created_at),
      last_used_at: toTime(Math.max(row.last_used_at, row.key_used_at ?? 0)),
      expires_at: toTime(row.expires_at),
      client_address: row.client_address,
      user_agent: row.user_agent,
      is_current: row.id === currentId,
    }));
  }

  /** Throws `not_found` if the person has no session with this id. */
  async end(userId: string, id: string, by: AuditActor): Promise<void> {
    await this.#db.transaction().execute(async (transaction) => {
      const { numDeletedRows } = await transaction
        .deleteFrom('login_sessions')
        .where('user_id', '=', userId)
        .where('id', '=', id)
        .executeTakeFirst();
      if (numDeletedRows === 0n) throw new AppError('not_found', 'you have no such session');
      const notes = [{ event: 'session.ended' as const, data: { session_id: id } }];
      await this.#audit.writeForMember(transaction, userId, { by, notes });
    });
  }

  async endOthers(userId: string, currentId: string): Promise<void> {
    await this.#db
      .deleteFrom('login_sessions')
      .where('user_id', '=', userId)
      .where('id', '<>', currentId)
      .execute();
  }

  async purge(): Promise<void> {
    await this.#db.deleteFrom('login_sessions').where('expires_at', '<', this.#now()).execute();
  }
}

function hashToken(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

function toTime(time: number): string {
  return new Date(time).toISOString();
}
