/**
 * The only writer of the audit logs of organizations. An entry is written in the transaction of the change that it
 * records, so that neither is ever stored without the other:
 *
 *     BEGIN ─► the change ─► lock of the organization's log ─► head, secret ─► INSERT of entries ─► COMMIT
 *
 * The lock is the last one that a transaction takes, and where it takes several, it takes them in the order of the
 * organizations' ids. So no two transactions ever wait for each other, whatever locks their changes need.
 */
import { AppError, SERVICE_ACTOR, type AuditActor, type AuditHead } from '@coppice/contract';
import { sql } from 'kysely';
import type { Database } from '../../db/database.ts';
import type { SecretBox } from '../../secrets/secret-box.ts';
import { assertRoom, requireRoom, type Noted } from './assert-room.ts';
import { buildEntry, type OrganizationHead, type OrganizationNote } from './organization-entry.ts';
import type { OrganizationAuditRow } from './organization-audit-tables.ts';
import { OrganizationSecrets } from './organization-secrets.ts';
import type { AuditSecret, AuditSecretInfo } from '../audit-secrets.ts';

/** Limits of what a reader holds in memory. */
const MAX_PAGE_ENTRIES = 500;

/** The caller who makes a change, and the organization that has it. */
export interface Change {
  organizationId: string;
  by: AuditActor;
}

export interface OrganizationChange extends Change {
  notes: readonly OrganizationNote[];
}

/** The result of a change, and the entries that record it; none if nothing was changed. */
export interface Changed<T> {
  result: T;
  notes: readonly OrganizationNote[];
}

export interface OrganizationAuditFilter {
  event?: string | undefined;
  actor?: string | undefined;
}

export class OrganizationAudit {
  readonly #secrets: OrganizationSecrets;
  readonly #now: () => number;

  constructor(box: SecretBox, now: () => number = Date.now) {
    this.#secrets = new OrganizationSecrets(box);
    this.#now = now;
  }

  /** Makes a change and adds its entries: all or nothing. */
  commit<T>(
    db: Database,
    { organizationId, by }: Change,
    change: (transaction: Database) => Promise<Changed<T>>,
  ): Promise<T> {
    return db.transaction().execute(async (transaction) => {
      const { result, notes } = await change(transaction);
      await this.write(transaction, { organizationId, by, notes });
      return result;
    });
  }

  /**
   * Adds entries. Call as the last statement of the transaction that makes the change. Throws `rate_limited`, which undoes
   * the change, after too many: see assert-room.ts.
   */
  async write(transaction: Database, { organizationId, by, notes }: OrganizationChange): Promise<void> {
    if (notes.length === 0) return;
    await this.#lock(transaction, { organizationId, by, notes });
    const newest = await this.#secrets.findNewest(transaction, organizationId);
    if (newest !== undefined) return this.#append(transaction, { organizationId, by, notes }, newest);
    // The first entry needs a first secret. If the newest cannot be read, changes must still be possible: the chain
    // continues with another secret, and says so.
    const isFirst = (await this.#secrets.list(transaction, organizationId, 1)).length === 0;
    const secret = await this.#secrets.add(transaction, organizationId);
    const replaced: OrganizationNote = {
      event: 'audit_secret.created',
      data: { id: secret.id, team_id: null },
    };
    if (!isFirst)
      await this.#append(transaction, { organizationId, by: SERVICE_ACTOR, notes: [replaced] }, secret);
    await this.#append(transaction, { organizationId, by, notes }, secret);
  }

  /** Throws `rate_limited` if the log has too many entries of the last hour for a change by this actor. */
  requireRoom(db: Database, change: Omit<OrganizationChange, 'notes'>): Promise<void> {
    return requireRoom(db, change, this.#now());
  }

  /** Adds the same entry to the logs of all organizations that the person is a member of. Rules as of {@link write}. */
  async writeForMember(
    transaction: Database,
    userId: string,
    { by, notes }: Omit<OrganizationChange, 'organizationId'>,
  ): Promise<void> {
    const rows = await transaction
      .selectFrom('memberships')
      .select('organization_id')
      .where('user_id', '=', userId)
      .execute();
    for (const organizationId of rows.map((row) => row.organization_id).toSorted())
      await this.write(transaction, { organizationId, by, notes });
  }

  /** Makes a new secret, which keys the entries from now on. The entry that records it is the first of them. */
  rotate(db: Database, organizationId: string, by: AuditActor): Promise<AuditSecret> {
    return db.transaction().execute(async (transaction) => {
      await this.#lock(transaction, { organizationId, by, notes: [{ event: 'audit_secret.created' }] });
      const secret = await this.#secrets.add(transaction, organizationId);
      const data = { id: secret.id, team_id: null };
      const notes: OrganizationNote[] = [{ event: 'audit_secret.created', data }];
      await this.#append(transaction, { organizationId, by, notes }, secret);
      return secret;
    });
  }

  /** Returns a secret, and records that it was revealed. */
  reveal(
    db: Database,
    { organizationId, id }: { organizationId: string; id: string },
    by: AuditActor,
  ): Promise<AuditSecret> {
    return db.transaction().execute(async (transaction) => {
      const secret = await this.#secrets.get(transaction, organizationId, id);
      const notes: OrganizationNote[] = [{ event: 'audit_secret.revealed', data: { id, team_id: null } }];
      await this.write(transaction, { organizationId, by, notes });
      return secret;
    });
  }

  /** Lists the ids of an organization's secrets, newest first. */
  listSecrets(db: Database, organizationId: string): Promise<AuditSecretInfo[]> {
    return this.#secrets.list(db, organizationId);
  }

  async findHead(db: Database, organizationId: string): Promise<AuditHead> {
    const head = await findHead(db, organizationId);
    return { seq: head?.seq ?? 0, hmac: head?.hmac ?? null };
  }

  /** Yields the entries after `after`, in order, in pages of bounded size, each when the one before is consumed. */
  async *read(
    db: Database,
    { organizationId, after }: { organizationId: string; after: number },
    { event, actor }: OrganizationAuditFilter = {},
  ): AsyncGenerator<OrganizationAuditRow[]> {
    // The conditions are those of the indexes of the table.
    const byEvent = event === undefined ? sql`` : sql`AND event = ${event}`;
    const byActor = actor === undefined ? sql`` : sql`AND actor::jsonb ->> 'id' = ${actor}`;
    for (let seq = after; ;) {
      const { rows: page } = await sql<OrganizationAuditRow>`
        SELECT * FROM organization_audit_entries
        WHERE organization_id = ${organizationId} AND seq > ${seq} ${byEvent} ${byActor}
        ORDER BY seq LIMIT ${MAX_PAGE_ENTRIES}`.execute(db);
      const last = page.at(-1);
      if (last === undefined) return;
      yield page;
      seq = last.seq;
    }
  }

  async #lock(
    transaction: Database,
    { organizationId, by, notes }: Omit<OrganizationChange, 'notes'> & { notes: readonly Noted[] },
  ): Promise<void> {
    await lockLog(transaction, organizationId);
    await assertRoom(transaction, { organizationId, by, notes }, this.#now());
  }

  async #append(
    transaction: Database,
    { organizationId, by, notes }: OrganizationChange,
    key: AuditSecret,
  ): Promise<void> {
    let head = await findHead(transaction, organizationId);
    const rows: OrganizationAuditRow[] = [];
    for (const note of notes) {
      const row = buildEntry({ organizationId, key, head, actor: by, note, nowMs: this.#now() });
      rows.push(row);
      head = row;
    }
    await transaction.insertInto('organization_audit_entries').values(rows).execute();
  }
}

/** Until the end of the transaction no other adds to the log. The lock needs no row, so that it also holds for a first entry. */
async function lockLog(transaction: Database, organizationId: string): Promise<void> {
  if (!transaction.isTransaction) throw new AppError('internal', 'an audit entry needs a transaction');
  await sql`
    SELECT pg_advisory_xact_lock(hashtextextended(${`coppice-organization-audit:${organizationId}`}, 0))`.execute(
    transaction,
  );
}

async function findHead(db: Database, organizationId: string): Promise<OrganizationHead | undefined> {
  return db
    .selectFrom('organization_audit_entries')
    .select(['seq', 'hmac', 'ts'])
    .where('organization_id', '=', organizationId)
    .orderBy('seq', 'desc')
    .limit(1)
    .executeTakeFirst();
}
