/** Sandboxes that ran and have ended, in SQL, newest end first. */
import { costCents, formatImageReference, parseImageReference, type HistoryRecord } from '@coppice/contract';
import { sql, type RawBuilder } from 'kysely';
import { isWithinSql, type Reach } from '../accounts/organizations/reach.ts';
import type { Database } from '../db/database.ts';
import type { SandboxRow } from '../sandbox/record/sandbox-tables.ts';
import { HAS_RUN } from './consumption/has-run.ts';

export interface HistoryFilter {
  reach: Reach;
  /** Empty: all statuses. */
  statuses: readonly ('destroyed' | 'failed')[];
  /** The sandbox must have all of these labels. */
  labels: Readonly<Record<string, string>>;
  /** Unix milliseconds of the end, inclusive. */
  from?: number | undefined;
  /** Unix milliseconds of the end, exclusive. */
  to?: number | undefined;
  /** Image reference, resolved or as a create accepts it. */
  image?: string | undefined;
  limit: number;
  /** Only sandboxes that ended before this one. */
  after?: { endedAt: number; id: string };
}

const COLUMNS = [
  'id',
  'status',
  'status_reason',
  'team_id',
  'image',
  'vcpus',
  'mem_mib',
  'labels',
  'create_ms',
  'created_at',
  'ended_at',
  'uptime_ms',
  'billed_ms',
  'cpu_ms',
  'mem_peak_bytes',
  'cost_units',
] as const satisfies (keyof SandboxRow)[];

type HistoryRow = Pick<SandboxRow, (typeof COLUMNS)[number]>;

export async function listHistory(db: Database, filter: HistoryFilter): Promise<HistoryRow[]> {
  const { reach, statuses, labels, from, to, image, limit, after } = filter;
  let query = db
    .selectFrom('sandboxes')
    .select(COLUMNS)
    .where(isWithinSql(reach, 'sandboxes'))
    .where('ended_at', 'is not', null)
    .where(HAS_RUN)
    .orderBy('ended_at', 'desc')
    .orderBy('id', 'desc')
    .limit(limit);
  if (statuses.length > 0) query = query.where('status', 'in', [...statuses]);
  if (Object.keys(labels).length > 0)
    query = query.where(sql<boolean>`labels @> ${JSON.stringify(labels)}::jsonb`);
  if (from !== undefined) query = query.where('ended_at', '>=', from);
  if (to !== undefined) query = query.where('ended_at', '<', to);
  if (image !== undefined) query = query.where(isOfImage(image));
  if (after !== undefined)
    query = query.where(sql<boolean>`(ended_at, id) < (${after.endedAt}, ${after.id})`);
  return query.execute();
}

export function buildHistoryRecord(row: HistoryRow): HistoryRecord {
  return {
    id: row.id,
    status: row.status === 'failed' ? 'failed' : 'destroyed',
    status_reason: row.status_reason,
    team_id: row.team_id,
    image: row.image,
    vcpus: row.vcpus,
    mem_mib: row.mem_mib,
    labels: row.labels,
    create_ms: row.create_ms,
    created_at: new Date(row.created_at).toISOString(),
    destroyed_at: new Date(row.ended_at ?? row.created_at).toISOString(),
    uptime_ms: row.uptime_ms,
    billed_ms: row.billed_ms,
    cpu_ms: row.cpu_ms,
    mem_peak_bytes: row.mem_peak_bytes,
    cost_cents: costCents(BigInt(row.cost_units)),
  };
}

/** Matches the image as requested, or with the digest that it was resolved to. */
function isOfImage(image: string): RawBuilder<boolean> {
  const resolved = formatImageReference(parseImageReference(image));
  const prefix = resolved.replaceAll(/[\\%_]/g, '\\$&');
  return sql<boolean>`(image IN (${image}, ${resolved}) OR image LIKE ${`${prefix}@%`})`;
}
