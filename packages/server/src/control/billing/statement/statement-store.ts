/**
 * The billed time of sandboxes in a month, from their segments and from running sandboxes, all as of one moment. Each
 * stretch is cut at the borders of the month, so that the months of a sandbox add up to its bill to the millisecond.
 */
import type { Consumption } from '@coppice/contract';
import { sql } from 'kysely';
import type { HostMoment } from '../../../lib/host-clock.ts';
import { isWithinSql, type Reach } from '../../accounts/organizations/reach.ts';
import type { Database } from '../../db/database.ts';
import { listSeen } from '../../ownership/seen-runner.ts';
import type { SandboxRow } from '../../sandbox/record/sandbox-tables.ts';
import { findAgeWhenSeenMs, keepLastSeen } from '../../time/lifetime.ts';
import { readMonthOfDisks, type DiskSum } from '../storage/read-month.ts';
import type { Month } from '../months/month.ts';
import { BILLABLE_COLUMNS, findOpenStretch, type BillableRow } from '../consumption/stretch.ts';

export interface MonthQuery {
  reach: Reach;
  month: Month;
  /** A moment before the query. */
  now: HostMoment;
  /** Maximum number of lines. */
  limit: number;
  /** Only lines of sandboxes whose ids come after this one. */
  after: string;
}

export interface MonthLine {
  sandboxId: string;
  teamId: string;
  image: string;
  vcpus: number;
  memMiB: number;
  billedMs: number;
}

export interface TeamSum extends Consumption {
  teamId: string;
  sandboxes: number;
}

export interface MonthPage {
  lines: MonthLine[];
  teams: TeamSum[];
  disks: DiskSum[];
  /** True if no live sandbox can change it any more. */
  isSettled: boolean;
}

export async function readMonth(db: Database, query: MonthQuery): Promise<MonthPage> {
  return db
    .transaction()
    .setIsolationLevel('repeatable read')
    .setAccessMode('read only')
    .execute(async (transaction) => {
      const alive = await listUnsettled(transaction, query.reach);
      const pieces = buildPieces(query, alive);
      return {
        lines: await readLines(transaction, pieces, query),
        teams: await readTeams(transaction, pieces),
        disks: await readMonthOfDisks(transaction, { ...query, nowMs: query.now.wallMs }),
        isSettled: await areSettled(transaction, alive, query),
      };
    });
}

/** Yields page after page, each as of the moment when it is read. */
export async function* readMonthLines(
  db: Database,
  query: Omit<MonthQuery, 'after' | 'now'>,
  now: () => HostMoment,
): AsyncGenerator<MonthLine[], void, undefined> {
  for (let after = ''; ;) {
    const moment = now();
    const alive = await listUnsettled(db, query.reach);
    const full = { ...query, after, now: moment };
    const lines = await readLines(db, buildPieces(full, alive), full);
    if (lines.length > 0) yield lines;
    const last = lines.at(-1);
    if (last === undefined || lines.length < query.limit) return;
    after = last.sandboxId;
  }
}

type UnsettledRow = BillableRow & Pick<SandboxRow, 'runner_id'>;

function listUnsettled(db: Database, reach: Reach): Promise<UnsettledRow[]> {
  return db
    .selectFrom('sandboxes')
    .select([...BILLABLE_COLUMNS, 'runner_id'])
    .where(isWithinSql(reach, 'sandboxes'))
    .where('status', 'in', ['creating', 'running'])
    .execute();
}

async function areSettled(
  db: Database,
  alive: readonly UnsettledRow[],
  { month, now }: Pick<MonthQuery, 'month' | 'now'>,
): Promise<boolean> {
  if (now.wallMs < month.to) return alive.length === 0;
  const runners = alive.flatMap(({ status, runner_id }) => (status === 'running' ? (runner_id ?? []) : []));
  const seen = await listSeen(db, [...new Set(runners)]);
  return alive.every((row) => {
    const ofRunner = row.status === 'running' ? seen.get(row.runner_id ?? '') : undefined;
    return isSettled(ofRunner === undefined ? row : keepLastSeen(row, ofRunner), month);
  });
}

/**
 * Returns whether a live sandbox can no longer change the month. One that was seen running after the month is billed
 * for all of it, however it ends. A create may still fail and be billed nothing.
 */
function isSettled(row: BillableRow, { to }: Month): boolean {
  const seenAt = row.status === 'creating' ? row.created_at : row.created_at + findAgeWhenSeenMs(row);
  return seenAt >= to;
}

/** Builds a SQL relation of the parts of all stretches that lie in the month. */
function buildPieces({ reach, month, now }: MonthQuery, alive: readonly BillableRow[]) {
  const open = alive.flatMap((row) => {
    const stretch = findOpenStretch(row, now);
    if (stretch === undefined) return [];
    const { id: sandbox_id, team_id, vcpus, mem_mib } = row;
    return [
      { sandbox_id, team_id, vcpus, mem_mib, started_at: stretch.startedAt, ended_at: stretch.endedAt },
    ];
  });
  const { from, to } = month;
  const cut = sql`least(ended_at, ${to}::bigint) - greatest(started_at, ${from}::bigint)`;
  return sql`(
    SELECT sandbox_id, team_id, vcpus, mem_mib, ${cut} AS ms FROM billing_segments
    WHERE ${isWithinSql(reach, 'billing_segments')} AND ended_at > ${from} AND started_at < ${to}
    UNION ALL
    SELECT sandbox_id, team_id, vcpus, mem_mib, ${cut} AS ms
    FROM jsonb_to_recordset(${JSON.stringify(open)}::jsonb)
      AS open(sandbox_id text, team_id text, vcpus int, mem_mib int, started_at bigint, ended_at bigint)
    WHERE ended_at > ${from} AND started_at < ${to})`;
}

type Pieces = ReturnType<typeof buildPieces>;

async function readLines(
  db: Database,
  pieces: Pieces,
  { after, limit }: Pick<MonthQuery, 'after' | 'limit'>,
): Promise<MonthLine[]> {
  const { rows } = await sql<Omit<MonthLine, 'billedMs'> & { billedMs: string }>`
    SELECT piece.sandbox_id AS "sandboxId", piece.team_id AS "teamId", image, piece.vcpus, piece.mem_mib AS "memMiB",
      ms AS "billedMs"
    FROM (
      SELECT sandbox_id, team_id, vcpus, mem_mib, sum(ms) AS ms FROM ${pieces} pieces
      WHERE sandbox_id > ${after} COLLATE "C"
      GROUP BY sandbox_id, team_id, vcpus, mem_mib ORDER BY sandbox_id COLLATE "C" LIMIT ${limit}) piece
    JOIN sandboxes ON sandboxes.id = piece.sandbox_id
    ORDER BY piece.sandbox_id COLLATE "C"`.execute(db);
  return rows.map(({ sandboxId, teamId, image, vcpus, memMiB, billedMs }) => {
    return { sandboxId, teamId, image, vcpus, memMiB, billedMs: Number(billedMs) };
  });
}

async function readTeams(db: Database, pieces: Pieces): Promise<TeamSum[]> {
  const { rows } = await sql<{ teamId: string; sandboxes: number; vcpuMs: string; memMiBMs: string }>`
    SELECT team_id AS "teamId", count(*) AS sandboxes, sum(vcpu_ms) AS "vcpuMs", sum(mem_mib_ms) AS "memMiBMs"
    FROM (
      SELECT sandbox_id, team_id, sum(vcpus * ms) AS vcpu_ms, sum(mem_mib * ms) AS mem_mib_ms
      FROM ${pieces} pieces GROUP BY sandbox_id, team_id) sandbox
    GROUP BY team_id ORDER BY team_id`.execute(db);
  return rows.map(({ teamId, sandboxes, vcpuMs, memMiBMs }) => {
    return { teamId, sandboxes, vcpuMs: BigInt(vcpuMs), memMiBMs: BigInt(memMiBMs) };
  });
}
