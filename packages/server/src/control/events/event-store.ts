/** Numbered events in SQL. */
import type { EventRecord, EventType } from '@coppice/contract';
import { sql } from 'kysely';
import { isWithinSql, type Reach } from '../accounts/organizations/reach.ts';
import type { Database } from '../db/database.ts';
import { buildEventRecord } from './event-record.ts';
import type { EventRow } from './event-tables.ts';

/** How long events are kept. */
const KEPT_MS = 7 * 86_400_000;
/** Of one organization. */
const MAX_KEPT = 200_000;
/** Limit of one deleting statement. */
const MAX_DELETED = 5_000;

export interface EventFilter {
  reach: Reach;
  types?: readonly EventType[] | undefined;
  runId?: string | undefined;
  labels?: Readonly<Record<string, string>> | undefined;
}

export interface EventPage {
  records: EventRecord[];
  /** All events up to this id are in this page, or do not fit the filter. */
  throughId: number;
  /** The events of the organization up to this id are deleted, or those up to it that follow `after` are. */
  lostThrough: number;
  /** The newest id of the installation. */
  lastId: number;
}

export interface EventRetention {
  keptMs?: number;
  maxKept?: number;
}

interface Counters {
  last_id: number;
  lost_through: number;
}
type FoundRow = Counters & { [K in keyof EventRow]: EventRow[K] | null };

export class EventStore {
  readonly #db: Database;
  readonly #wallMs: () => number;
  readonly #keptMs: number;
  readonly #maxKept: number;

  constructor(
    db: Database,
    clock: { wallMs: () => number },
    { keptMs = KEPT_MS, maxKept = MAX_KEPT }: EventRetention = {},
  ) {
    this.#db = db;
    this.#wallMs = () => clock.wallMs();
    this.#keptMs = keptMs;
    this.#maxKept = maxKept;
  }

  /** Returns the first events after an id. One statement, so that events and counters are of one moment. */
  async listPage(filter: EventFilter, after: number, limit: number): Promise<EventPage> {
    const { rows } = await sql<FoundRow>`
      SELECT last_id, found.*, greatest(
        coalesce(lost_through, 0),
        (SELECT max(through_id) FROM event_gaps WHERE after_id < ${after} AND through_id > ${after})
      )::bigint AS lost_through
      FROM (SELECT coalesce(max(last_id), 0) AS last_id FROM event_counter) counter
      LEFT JOIN event_horizons ON event_horizons.organization_id = ${filter.reach.organizationId}
      LEFT JOIN LATERAL (
        SELECT * FROM events WHERE ${fits(filter)} AND id > ${after} ORDER BY id LIMIT ${limit}
      ) found ON true
      ORDER BY found.id`.execute(this.#db);
    const { last_id: lastId = 0, lost_through: lostThrough = 0 } = rows[0] ?? {};
    const records = rows.flatMap((row) => (row.id === null ? [] : [buildEventRecord(row as EventRow)]));
    const throughId = records.length < limit ? lastId : (records.at(-1)?.id ?? lastId);
    return { records, throughId, lostThrough, lastId };
  }

  /** Deletes events that are too old, and the oldest of organizations that have too many. */
  async purge(): Promise<void> {
    const before = this.#wallMs() - this.#keptMs;
    await this.#deleteAll(sql`id IN (
      SELECT id FROM (SELECT id, numbered_at FROM events ORDER BY id LIMIT ${MAX_DELETED}) oldest
      WHERE numbered_at < ${before})`);
    for (const id of await this.#listOrganizations()) await this.#purgeOf(id);
  }

  async #deleteAll(condition: ReturnType<typeof sql>): Promise<void> {
    for (;;) {
      const { rows } = await sql<{ deleted: number }>`
        WITH gone AS (DELETE FROM events WHERE ${condition} RETURNING organization_id, id),
        noted AS (
          INSERT INTO event_horizons (organization_id, lost_through)
          SELECT organization_id, max(id) FROM gone GROUP BY organization_id
          ON CONFLICT (organization_id)
          DO UPDATE SET lost_through = greatest(event_horizons.lost_through, excluded.lost_through)
        )
        SELECT count(*)::integer AS deleted FROM gone`.execute(this.#db);
      if ((rows[0]?.deleted ?? 0) < MAX_DELETED) return;
    }
  }

  async #listOrganizations(): Promise<string[]> {
    const { rows } = await sql<{ id: string }>`
      SELECT id FROM organizations
      WHERE EXISTS (SELECT FROM events WHERE organization_id = organizations.id)`.execute(this.#db);
    return rows.map(({ id }) => id);
  }

  /** A statement for each organization: one that counts those of all would reach the deadline of statements. */
  async #purgeOf(organizationId: string): Promise<void> {
    const newestTooOld = await this.#db
      .selectFrom('events')
      .select('id')
      .where('organization_id', '=', organizationId)
      .orderBy('id', 'desc')
      .offset(this.#maxKept)
      .limit(1)
      .executeTakeFirst();
    if (newestTooOld === undefined) return;
    await this.#deleteAll(sql`id IN (
      SELECT id FROM events WHERE organization_id = ${organizationId} AND id <= ${newestTooOld.id}
      ORDER BY id LIMIT ${MAX_DELETED})`);
  }
}

function fits({ reach, types, runId, labels }: EventFilter) {
  const conditions = [isWithinSql(reach, 'events')];
  if (types !== undefined) conditions.push(sql<boolean>`type = ANY(${[...types]}::text[])`);
  if (runId !== undefined) conditions.push(sql<boolean>`sandbox_id = ${runId}`);
  if (labels !== undefined && Object.keys(labels).length > 0)
    conditions.push(sql<boolean>`labels @> ${JSON.stringify(labels)}::jsonb`);
  return sql<boolean>`${sql.join(conditions, sql` AND `)}`;
}
