/**
 * The secrets that key the audit chains of teams. A chain keeps the secret that it began with, so no secret is ever
 * removed. A rotation adds a newer one for the chains that begin after it.
 */
import { AppError } from '@coppice/contract';
import type { Database } from '../db/database.ts';
import type { TeamSecretRow } from '../accounts/account-tables.ts';
import type { SecretBox, SecretContext } from '../secrets/secret-box.ts';
import {
  ifReadable,
  newAuditSecret,
  OpenedSecrets,
  timeAfter,
  type AuditSecret,
  type AuditSecretInfo,
} from './audit-secrets.ts';

const PREFIX = 'cts_';
const REMEDY = 'put that one back (master.key), or destroy the sandboxes whose audit logs it keys';

export class TeamSecrets {
  readonly #db: Database;
  readonly #box: SecretBox;
  readonly #opened: OpenedSecrets;

  constructor(db: Database, box: SecretBox) {
    this.#db = db;
    this.#box = box;
    this.#opened = new OpenedSecrets(box, { remedy: REMEDY });
  }

  /**
   * Returns the newest secret of a team. Adds one if there is none, or if the newest is sealed with another master key.
   * Throws `not_found` if there is no such team.
   */
  async ensure(teamId: string): Promise<AuditSecret> {
    const newest = await this.#openNewest(this.#db, teamId);
    if (newest !== undefined) return newest;
    return this.#db.transaction().execute(async (transaction) => {
      const organizationId = await lockTeam(transaction, teamId);
      const made = await this.#openNewest(transaction, teamId);
      return made ?? this.#add(transaction, { organizationId, teamId });
    });
  }

  /**
   * Returns a secret that a chain refers to. Throws `not_found` if there is none, `secret_unreadable` without its
   * master key.
   */
  get(id: string): Promise<AuditSecret> {
    return this.#get(this.#db, id);
  }

  /**
   * Uses the caller's connection. With another one for each call, callers that wait for the team's lock could hold all
   * connections, and its holder would get none.
   */
  async #get(db: Database, id: string): Promise<AuditSecret> {
    const opened = this.#opened.find(id);
    if (opened !== undefined) return opened;
    const row = await db
      .selectFrom('team_secrets')
      .innerJoin('teams', 'teams.id', 'team_secrets.team_id')
      .select(['team_id', 'organization_id', 'sealed_secret'])
      .where('team_secrets.id', '=', id)
      .executeTakeFirst();
    if (row === undefined) throw new AppError('not_found', `there is no team secret ${JSON.stringify(id)}`);
    const owner = { organizationId: row.organization_id, teamId: row.team_id };
    return this.#opened.open(id, row.sealed_secret, bindTeamSecret(owner, id));
  }

  /**
   * Adds a newest secret, in a transaction of the caller. Existing chains keep theirs. Throws `not_found` if there is no
   * such team.
   */
  async rotate(transaction: Database, teamId: string): Promise<AuditSecret> {
    const organizationId = await lockTeam(transaction, teamId);
    return this.#add(transaction, { organizationId, teamId });
  }

  /** Lists a team's secrets, newest first. */
  async list(teamId: string): Promise<AuditSecretInfo[]> {
    const rows = await this.#db
      .selectFrom('team_secrets')
      .select(['id', 'created_at'])
      .where('team_id', '=', teamId)
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .execute();
    return rows.map(({ id, created_at }) => ({ id, createdAt: created_at }));
  }

  /** Returns undefined if there is none, or if the newest cannot be opened. */
  async #openNewest(db: Database, teamId: string): Promise<AuditSecret | undefined> {
    const newest = await findNewest(db, teamId);
    return newest === undefined ? undefined : ifReadable(this.#get(db, newest.id));
  }

  /** Call inside a transaction that has locked the team. */
  async #add(transaction: Database, owner: TeamOwner): Promise<AuditSecret> {
    const newest = await findNewest(transaction, owner.teamId);
    const { id, secret } = newAuditSecret(PREFIX);
    await transaction
      .insertInto('team_secrets')
      .values({
        id,
        team_id: owner.teamId,
        sealed_secret: this.#box.seal(secret, bindTeamSecret(owner, id)),
        created_at: timeAfter(newest?.created_at),
      })
      .execute();
    return { id, secret };
  }
}

interface TeamOwner {
  organizationId: string;
  teamId: string;
}

/** The context that a team secret is bound to when sealed. */
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

/** Locks a team, so that secrets are added to it one after the other, and returns its organization's id. */
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
