/**
 * Changes a sandbox's row and, in the same statement, its billing: a stretch of running that is over becomes a segment.
 * A sandbox that has ended is added to the sums of its organization and of its team, and loses its secrets. Either all
 * of it is committed or nothing.
 */
import type { EventType } from '@coppice/contract';
import { sql, type QueryCreator, type RawBuilder } from 'kysely';
import type { Database } from '../../db/database.ts';
import { HAS_RUN } from '../../billing/consumption/has-run.ts';
import { findClosedStretch, type Stretch } from '../../billing/consumption/stretch.ts';
import type { Tables } from '../../schema/tables.ts';
import { ROW_COLUMNS } from './row-columns.ts';
import type { SandboxRow, SandboxUpdate } from './sandbox-tables.ts';

/** Returns the changed row, or undefined if the sandbox has been changed since `from` was read. */
export async function updateBilled(
  db: Database,
  from: SandboxRow,
  change: SandboxUpdate,
): Promise<SandboxRow | undefined> {
  const stretch = findClosedStretch(from, change);
  const isEnd = change.ended_at !== undefined && change.ended_at !== null;
  if (stretch === undefined && !isEnd) return buildUpdate(db, from, change).executeTakeFirst();
  const changed = db.with('changed', (creator) => buildUpdate(creator, from, change));
  const billed = changed
    .with('segment', (creator) => insertSegment(creator, stretch))
    .with('reported', (creator) => reportSegment(creator, stretch))
    .with('account', addToSums('billing_accounts', 'organization_id'))
    .with('team', addToSums('team_accounts', 'team_id'))
    .with('forgotten', (creator) => forget(creator, 'sandbox_credentials'))
    .with('passed', (creator) => forget(creator, 'egress_cursors'));
  return billed.selectFrom('changed').selectAll().executeTakeFirst();
}

type Changed = Tables & { changed: SandboxRow };

function buildUpdate(
  creator: QueryCreator<Tables>,
  { id, status, version }: SandboxRow,
  change: SandboxUpdate,
) {
  return creator
    .updateTable('sandboxes')
    .set({ ...change, version: version + 1, operation: null })
    .where('id', '=', id)
    .where('version', '=', version)
    .where('status', '=', status)
    .returning(ROW_COLUMNS);
}

function insertSegment(creator: QueryCreator<Changed>, stretch: Stretch = { startedAt: 0, endedAt: 0 }) {
  return creator
    .insertInto('billing_segments')
    .columns(['sandbox_id', 'organization_id', 'team_id', 'vcpus', 'mem_mib', 'started_at', 'ended_at'])
    .expression(
      creator
        .selectFrom('changed')
        .select(['id', 'organization_id', 'team_id', 'vcpus', 'mem_mib'])
        .select([
          sql<number>`${stretch.startedAt}::bigint`.as('started_at'),
          sql<number>`${stretch.endedAt}::bigint`.as('ended_at'),
        ])
        .where(sql<boolean>`${stretch.endedAt}::bigint > ${stretch.startedAt}::bigint`),
    );
}

/** Writes the event of a segment. */
function reportSegment(creator: QueryCreator<Changed>, stretch: Stretch = { startedAt: 0, endedAt: 0 }) {
  const times = {
    started_at: new Date(stretch.startedAt).toISOString(),
    ended_at: new Date(stretch.endedAt).toISOString(),
  };
  return creator
    .insertInto('pending_events')
    .columns(['organization_id', 'team_id', 'sandbox_id', 'labels', 'type', 'at', 'data'])
    .expression(
      creator
        .selectFrom('changed')
        .select(['organization_id', 'team_id', 'id', 'labels'])
        .select([
          sql<EventType>`'usage.billed'`.as('type'),
          sql<number>`${stretch.endedAt}::bigint`.as('at'),
          sql<string>`(${JSON.stringify(times)}::jsonb
            || jsonb_build_object('vcpus', vcpus, 'mem_mib', mem_mib))::text`.as('data'),
        ])
        .where(sql<boolean>`${stretch.endedAt}::bigint > ${stretch.startedAt}::bigint`),
    );
}

/** Deletes rows that are of no use once the sandbox has ended. */
function forget(creator: QueryCreator<Changed>, table: 'sandbox_credentials' | 'egress_cursors') {
  return creator
    .deleteFrom(table)
    .where('sandbox_id', 'in', (select) =>
      select.selectFrom('changed').select('id').where('ended_at', 'is not', null),
    );
}

/** Every end locks the row of its organization and that of its team in the same order, so two ends never deadlock. */
function addToSums(
  table: 'billing_accounts' | 'team_accounts',
  owner: 'organization_id' | 'team_id',
): RawBuilder<Record<string, unknown>> {
  const sums = sql.table(table);
  return sql<Record<string, unknown>>`
    (INSERT INTO ${sums} (${sql.ref(owner)}, ended_sandboxes, vcpu_ms, mem_mib_ms)
    SELECT ${sql.ref(owner)}, CASE WHEN ${HAS_RUN} THEN 1 ELSE 0 END, vcpus * billed_ms, mem_mib * billed_ms
    FROM changed WHERE ended_at IS NOT NULL
    ON CONFLICT (${sql.ref(owner)}) DO UPDATE SET
      ended_sandboxes = ${sums}.ended_sandboxes + excluded.ended_sandboxes,
      vcpu_ms = ${sums}.vcpu_ms + excluded.vcpu_ms,
      mem_mib_ms = ${sums}.mem_mib_ms + excluded.mem_mib_ms)`;
}
