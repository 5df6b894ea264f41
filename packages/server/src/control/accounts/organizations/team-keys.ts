/**
 * API keys of teams: create, list, revoke, and rotate with an overlap in which both keys are valid. Keys of sessions
 * (auth/session-keys.ts) are none of these.
 */
import {
  AppError,
  generateApiKey,
  type AuditActor,
  type ApiKeyRecord,
  type CreateApiKeyRequest,
  type CreatedApiKey,
  type OrganizationAuditData,
  type RotateApiKeyRequest,
} from '@coppice/contract';
import type { Selectable } from 'kysely';
import type { OrganizationAudit } from '../../audit/organization/organization-audit.ts';
import type { OrganizationNote } from '../../audit/organization/organization-entry.ts';
import { isActiveKey, newKeyRow } from '../../auth/api-key-store.ts';
import type { Database } from '../../db/database.ts';
import { toTimestamp } from '../../time/timestamp.ts';
import type { ApiKeyTable } from '../account-tables.ts';
import type { Owner } from './organization-store.ts';

const MAX_ACTIVE = 200;
/** Older keys are left out of lists. */
const MAX_LISTED = 1000;

type Row = Selectable<ApiKeyTable>;

export interface TeamKeysParts {
  db: Database;
  region: string;
  audit: OrganizationAudit;
}

export class TeamKeys {
  readonly #db: Database;
  readonly #region: string;
  readonly #audit: OrganizationAudit;

  constructor({ db, region, audit }: TeamKeysParts) {
    this.#db = db;
    this.#region = region;
    this.#audit = audit;
  }

  async create(owner: Owner, request: CreateApiKeyRequest, by: AuditActor): Promise<CreatedApiKey> {
    return this.#db.transaction().execute(async (transaction) => {
      await assertRoom(transaction, owner.teamId);
      const created = await this.#insert(transaction, owner, request);
      const data = describeKey(owner, created);
      await this.#write(transaction, owner, by, { event: 'api_key.created', data });
      return created;
    });
  }

  /** Lists a team's keys, newest first, including revoked and expired ones. */
  async list(teamId: string): Promise<ApiKeyRecord[]> {
    const rows = await this.#db
      .selectFrom('api_keys')
      .selectAll()
      .where('team_id', '=', teamId)
      .where('session_id', 'is', null)
      .orderBy('created_at', 'desc')
      .orderBy('id')
      .limit(MAX_LISTED)
      .execute();
    return rows.map(toRecord);
  }

  /** Revokes a key from the next request on. Open requests end within seconds. A revoked key stays as it is. */
  async revoke(owner: Owner, id: string, by: AuditActor): Promise<void> {
    await this.#db.transaction().execute(async (transaction) => {
      const { revoked_at, last4 } = await getForUpdate(transaction, owner.teamId, id);
      if (revoked_at !== null) return;
      await update(transaction, id, { revoked_at: Date.now() });
      const data = { id, team_id: owner.teamId, last4 };
      await this.#write(transaction, owner, by, { event: 'api_key.revoked', data });
    });
  }

  /**
   * Creates a key with the same name and limits. The old key stays valid until the overlap ends or it expires,
   * whichever is first. Throws `invalid_state` if the old key is revoked or has expired.
   */
  async rotate(
    owner: Owner,
    id: string,
    { overlap_seconds, expires_in, by }: RotateApiKeyRequest & { by: AuditActor },
  ): Promise<CreatedApiKey> {
    return this.#db.transaction().execute(async (transaction) => {
      await assertRoom(transaction, owner.teamId);
      const row = await getForUpdate(transaction, owner.teamId, id);
      const now = Date.now();
      const expiresAt = row.expires_at ?? Infinity;
      if (row.revoked_at !== null || expiresAt <= now)
        throw new AppError('invalid_state', 'the key is revoked or has expired; make a new one');
      const until = overlap_seconds === 0 ? null : Math.min(expiresAt, now + overlap_seconds * 1000);
      await update(transaction, id, until === null ? { revoked_at: now } : { expires_at: until });
      const { name, scope, team_only } = row;
      const created = await this.#insert(transaction, owner, { name, scope, team_only, expires_in });
      const data = { ...describeKey(owner, created), replaced: id, replaced_until: toTimestamp(until) };
      await this.#write(transaction, owner, by, { event: 'api_key.rotated', data });
      return created;
    });
  }

  #write(transaction: Database, owner: Owner, by: AuditActor, note: OrganizationNote): Promise<void> {
    return this.#audit.write(transaction, { organizationId: owner.organizationId, by, notes: [note] });
  }

  async #insert(
    transaction: Database,
    owner: Owner,
    { name, expires_in, scope, team_only }: CreateApiKeyRequest,
  ): Promise<CreatedApiKey> {
    const key = generateApiKey(this.#region);
    const expires_at = expires_in === undefined ? null : Date.now() + expires_in * 1000;
    const row = await transaction
      .insertInto('api_keys')
      .values({ ...newKeyRow(owner, key), name, expires_at, scope, team_only })
      .returningAll()
      .executeTakeFirstOrThrow();
    return { ...toRecord(row), key };
  }
}

/** Throws `rate_limited` if the team has too many keys. Locks the team, so that its creates run one after the other. */
async function assertRoom(transaction: Database, teamId: string): Promise<void> {
  await transaction.selectFrom('teams').select('id').where('id', '=', teamId).forNoKeyUpdate().execute();
  if ((await countActive(transaction, teamId)) < MAX_ACTIVE) return;
  throw new AppError('rate_limited', `the team has ${MAX_ACTIVE} keys, which is the limit; revoke some`);
}

async function countActive(db: Database, teamId: string): Promise<number> {
  const { count } = await db
    .selectFrom('api_keys')
    .select(({ fn }) => fn.countAll<number>().as('count'))
    .where('team_id', '=', teamId)
    .where('session_id', 'is', null)
    .where(isActiveKey())
    .executeTakeFirstOrThrow();
  return count;
}

async function getForUpdate(transaction: Database, teamId: string, id: string): Promise<Row> {
  const row = await transaction
    .selectFrom('api_keys')
    .selectAll()
    .where('team_id', '=', teamId)
    .where('id', '=', id)
    .where('session_id', 'is', null)
    .forUpdate()
    .executeTakeFirst();
  if (row === undefined) throw new AppError('not_found', 'there is no such key of this team');
  return row;
}

async function update(
  db: Database,
  id: string,
  change: Partial<Pick<Row, 'revoked_at' | 'expires_at'>>,
): Promise<void> {
  await db.updateTable('api_keys').set(change).where('id', '=', id).execute();
}

/** Returns what the audit log says of a key. */
function describeKey(
  { teamId }: Owner,
  { id, name, last4, scope, team_only, expires_at }: ApiKeyRecord,
): OrganizationAuditData<'api_key.created'> {
  return { id, team_id: teamId, name, last4, scope, team_only, expires_at };
}

function toRecord(row: Row): ApiKeyRecord {
  const { id, name, last4, scope, team_only } = row;
  return {
    id,
    name,
    last4,
    scope,
    team_only,
    created_at: new Date(row.created_at).toISOString(),
    last_used_at: toTimestamp(row.last_used_at),
    expires_at: toTimestamp(row.expires_at),
    revoked_at: toTimestamp(row.revoked_at),
  };
}
