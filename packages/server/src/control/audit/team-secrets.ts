/**
 * The secrets that key the audit chains of teams. A chain keeps the secret that it began with, so none is ever removed: a
 * rotation adds a newer one, which the chains that begin after it take.
 */
import { randomBytes } from 'node:crypto';
import { AppError } from '@coppice/contract';
import { newId } from '../../lib/new-id.ts';
import { Secret } from '../../lib/secret.ts';
import type { Database } from '../db/database.ts';
import type { TeamSecretRow } from '../accounts/account-tables.ts';
import type { SecretBox, SecretContext } from '../secrets/secret-box.ts';
import { isUnreadable } from './write-errors.ts';

const SECRET_BYTES = 32;
const PREFIX = 'cts_';
/** Opened secrets that are kept at hand. */
const MAX_CACHED = 10_000;

export interface TeamSecret {
  /** `ask…`: what a sandbox's `audit_key_id` names. */
  id: string;
  secret: Secret;
}

export interface TeamSecretInfo {
  id: string;
  /** Unix milliseconds. */
  createdAt: number;
}

export class TeamSecrets {
  readonly #db: Database;
  readonly #box: SecretBox;
  readonly #opened = new Map<string, Secret>();

  constructor(db: Database, box: SecretBox) {
    this.#db = db;
    this.#box = box;
  }

  /**
   * The newest secret of a team, made when it has none, or one that is sealed with another master key. Throws `not_found`
   * when there is no such team.
   */
  async ensure(teamId: string): Promise<TeamSecret> {
    const newest = await this.#openNewest(this.#db, teamId);
    if (newest !== undefined) return newest;
    return this.#db.transaction().execute(async (transaction) => {
      const organizationId = await lockTeam(transaction, teamId);
      const made = await this.#openNewest(transaction, teamId);
      return made ?? this.#add(transaction, { organizationId, teamId });
    });
  }

  /** Any secret that a chain may name. Throws `not_found` when there is none, `secret_unreadable` without its master key. */
  get(id: string): Promise<TeamSecret> {
    return this.#get(this.#db, id);
  }

  /** By the connection that the caller has: with one of its own for each, all that wait for a lock would keep it from them. */
  async #get(db: Database, id: string): Promise<TeamSecret> {
    const cached = this.#opened.get(id);
    if (cached !== undefined) return { id, secret: cached };
    const row = await db
      .selectFrom('team_secrets')
      .innerJoin('teams', 'teams.id', 'team_secrets.team_id')
      .select(['team_id', 'organization_id', 'sealed_secret'])
      .where('team_secrets.id', '=', id)
      .executeTakeFirst();
    if (row === undefined) throw new AppError('not_found', `there is no team secret ${JSON.stringify(id)}`);
    const owner = { organizationId: row.organization_id, teamId: row.team_id };
    return this.#keep(id, this.#open(row.sealed_secret, bindTeamSecret(owner, id)));
  }

  /** A new newest secret. Chains that have begun go on with theirs. Throws `not_found` when there is no such team. */
  rotate(teamId: string): Promise<TeamSecret> {
    return this.#db.transaction().execute(async (transaction) => {
      const organizationId = await lockTeam(transaction, teamId);
      return this.#add(transaction, { organizationId, teamId });
    });
  }

  /** Newest first. */
  async list(teamId: string): Promise<TeamSecretInfo[]> {
    const rows = await this.#db
      .selectFrom('team_secrets')
      .select(['id', 'created_at'])
      .where('team_id', '=', teamId)
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .execute();
    return rows.map(({ id, created_at }) => ({ id, createdAt: created_at }));
  }

  /** Undefined when there is none, or none that opens. */
  async #openNewest(db: Database, teamId: string): Promise<TeamSecret | undefined> {
    const newest = await findNewest(db, teamId);
    if (newest === undefined) return undefined;
    try {
      return await this.#get(db, newest.id);
    } catch (error) {
      if (isUnreadable(error)) return undefined;
      throw error;
    }
  }

  /** In a transaction that has locked the team. */
  async #add(transaction: Database, owner: TeamOwner): Promise<TeamSecret> {
    const newest = await findNewest(transaction, owner.teamId);
    const id = newId('ask');
    const secret = new Secret(`${PREFIX}${randomBytes(SECRET_BYTES).toString('base64url')}`);
    await transaction
      .insertInto('team_secrets')
      .values({
        id,
        team_id: owner.teamId,
        sealed_secret: this.#box.seal(secret, bindTeamSecret(owner, id)),
        // The newest is known by its time, even after the clock was set back.
        created_at: Math.max(Date.now(), (newest?.created_at ?? 0) + 1),
      })
      .execute();
    return { id, secret };
  }

  #open(sealed: Buffer, context: SecretContext): Secret {
    try {
      return this.#box.open(sealed, context);
    } catch (cause) {
      throw new AppError(
        'secret_unreadable',
        `the ${context.purpose} ${context.name} was sealed with another master key: put that one back (master.key), or destroy the sandboxes whose audit logs it keys`,
        { cause },
      );
    }
  }

  #keep(id: string, secret: Secret): TeamSecret {
    if (this.#opened.size >= MAX_CACHED) this.#opened.clear();
    this.#opened.set(id, secret);
    return { id, secret };
  }
}

interface TeamOwner {
  organizationId: string;
  teamId: string;
}

/** What a team secret is sealed for. */
export function bindTeamSecret({ organizationId, teamId }: TeamOwner, id: string): SecretContext {
  return { organizationId, purpose: 'team secret', name: `${teamId}/${id}` };
}

async function findNewest(
  db: Database,
  teamId: string,
): Promise<Pick<TeamSecretRow, 'id' | 'created_at'> | undefined> {
  return db
    .selectFrom('team_secrets')
    .select(['id', 'created_at'])
    .where('team_id', '=', teamId)
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .limit(1)
    .executeTakeFirst();
}

/** Its organization; two that would make a first secret come one after the other. */
async function lockTeam(transaction: Database, teamId: string): Promise<string> {
  const team = await transaction
    .selectFrom('teams')
    .select('organization_id')
    .where('id', '=', teamId)
    .forUpdate()
    .executeTakeFirst();
  if (team === undefined) throw new AppError('not_found', `there is no team ${JSON.stringify(teamId)}`);
  return team.organization_id;
}
