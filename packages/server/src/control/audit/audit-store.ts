/** Audit entries in SQL: added and read, never changed. */
import { canonicalize, type AuditEvent } from '@coppice/contract';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { buildAuditEvent } from '../events/audit-event.ts';
import type { AuditEntryRow } from './audit-tables.ts';
import type { SandboxRow } from '../sandbox/record/sandbox-tables.ts';
import type { AuditNote, ChainHead } from './audit-chain.ts';

/** Limits of what a reader holds in memory: a command may have a megabyte. */
const MAX_PAGE_ENTRIES = 500;
const MAX_PAGE_BYTES = 1 << 20;

/** A sandbox's chain as stored in SQL. */
export interface StoredChain {
  sandboxId: string;
  teamId: string;
  /** Null for a sandbox that is older than audit logs and has no entry yet. */
  keyId: string | null;
  head: ChainHead | undefined;
}

interface UnwrittenEntry {
  sandboxId: string;
  note: AuditNote;
  atMs: number;
}

type HeadColumns = { [K in keyof ChainHead]: ChainHead[K] | null };
type StoredRow = Pick<SandboxRow, 'id' | 'team_id' | 'audit_key_id'> & HeadColumns;

export class AuditStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * Inserts all rows, and the events that they stand for, or none. The primary key refuses a `seq` that any writer has
   * taken.
   */
  async insert(rows: readonly AuditEntryRow[], db: Database = this.#db): Promise<void> {
    const column = <K extends keyof AuditEntryRow>(name: K): AuditEntryRow[K][] =>
      rows.map((row) => row[name]);
    const events = rows.map(({ event, data }) => buildAuditEvent(event, data));
    // One text for any number of rows, so that PostgreSQL need not parse a new statement for each number.
    await sql`
      WITH given AS (
        SELECT * FROM unnest(
          ${column('sandbox_id')}::text[], ${column('seq')}::integer[], ${column('ts')}::bigint[],
          ${column('event')}::text[], ${column('data')}::text[], ${column('hmac')}::text[],
          ${events.map((event) => event?.type ?? null)}::text[],
          ${events.map((event) => event?.data ?? null)}::text[]
        ) WITH ORDINALITY AS given (sandbox_id, seq, ts, event, data, hmac, event_type, event_data, place)
      ), entries AS (
        INSERT INTO audit_entries (sandbox_id, seq, ts, event, data, hmac)
        SELECT sandbox_id, seq, ts, event, data, hmac FROM given
      )
      INSERT INTO pending_events (organization_id, team_id, sandbox_id, labels, type, at, data)
      SELECT organization_id, team_id, sandbox_id, labels, event_type, ts, event_data
      FROM given JOIN sandboxes ON sandboxes.id = sandbox_id
      WHERE event_type IS NOT NULL ORDER BY place`.execute(db);
  }

  /** Inserts only the event of an entry that cannot be written. */
  async insertEvent({ sandboxId, note, atMs }: UnwrittenEntry, db: Database): Promise<void> {
    const event = buildAuditEvent(note.event, canonicalize(note.data));
    if (event === undefined) return;
    await sql`
      INSERT INTO pending_events (organization_id, team_id, sandbox_id, labels, type, at, data)
      SELECT organization_id, team_id, id, labels, ${event.type}, ${Math.round(atMs)}, ${event.data}
      FROM sandboxes WHERE id = ${sandboxId}`.execute(db);
  }

  /** Lists the chains of those sandboxes that exist. */
  async listChains(sandboxIds: readonly string[]): Promise<StoredChain[]> {
    const { rows } = await sql<StoredRow>`
      SELECT sandboxes.id, team_id, audit_key_id, last.seq, last.hmac, last.ts, last.event FROM sandboxes
      LEFT JOIN LATERAL (
        SELECT seq, hmac, ts, event FROM audit_entries
        WHERE sandbox_id = sandboxes.id ORDER BY seq DESC LIMIT 1
      ) last ON true
      WHERE sandboxes.id = ANY(${[...sandboxIds]}::text[])`.execute(this.#db);
    return rows.map((row) => ({
      sandboxId: row.id,
      teamId: row.team_id,
      keyId: row.audit_key_id,
      head: toHead(row),
    }));
  }

  async findHead(sandboxId: string): Promise<ChainHead | undefined> {
    return (await this.listChains([sandboxId]))[0]?.head;
  }

  /** Sets the key of a sandbox that has none yet. */
  async setKey(sandboxId: string, keyId: string): Promise<void> {
    await this.#db
      .updateTable('sandboxes')
      .set({ audit_key_id: keyId })
      .where('id', '=', sandboxId)
      .where('audit_key_id', 'is', null)
      .execute();
  }

  /** Returns a page of the entries after `afterSeq`, in order. It is empty only if there are no more. */
  async listEntries(sandboxId: string, afterSeq: number): Promise<AuditEntryRow[]> {
    const { rows } = await sql<AuditEntryRow>`
      SELECT sandbox_id, seq, ts, event, data, hmac FROM (
        SELECT *, sum(octet_length(data)) OVER (ORDER BY seq) - octet_length(data) AS bytes_before FROM (
          SELECT * FROM audit_entries WHERE sandbox_id = ${sandboxId} AND seq > ${afterSeq}
          ORDER BY seq LIMIT ${MAX_PAGE_ENTRIES}
        ) AS next
      ) AS page WHERE bytes_before < ${MAX_PAGE_BYTES} ORDER BY seq`.execute(this.#db);
    return rows;
  }

  async hasRollback(sandboxId: string, rollbackId: string): Promise<boolean> {
    const event: AuditEvent = 'sandbox.rolled_back';
    const { rows } = await sql`
      SELECT 1 FROM audit_entries
      WHERE sandbox_id = ${sandboxId} AND event = ${event} AND data::jsonb ->> 'rollback_id' = ${rollbackId}
      LIMIT 1`.execute(this.#db);
    return rows.length > 0;
  }

  /** Lists ended sandboxes whose log is only in SQL, earliest end first, without the first `skip` of them. */
  listUnstored(limit: number, { skip = 0 } = {}): Promise<Pick<SandboxRow, 'id' | 'organization_id'>[]> {
    return this.#db
      .selectFrom('sandboxes')
      .select(['id', 'organization_id'])
      .where('audit_key_id', 'is not', null)
      .where('audit_stored_at', 'is', null)
      .where('ended_at', 'is not', null)
      .orderBy('ended_at')
      .orderBy('id')
      .offset(skip)
      .limit(limit)
      .execute();
  }

  async noteStored(sandboxId: string, atMs: number): Promise<void> {
    await this.#db
      .updateTable('sandboxes')
      .set({ audit_stored_at: atMs })
      .where('id', '=', sandboxId)
      .execute();
  }
}

function toHead({ seq, hmac, ts, event }: HeadColumns): ChainHead | undefined {
  if (seq === null || hmac === null || ts === null || event === null) return undefined;
  return { seq, hmac, ts, event };
}
