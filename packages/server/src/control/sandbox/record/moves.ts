/**
 * Gives a hibernated sandbox to another runner. One statement, which names the version of the row and the owners of both
 * runners, so that of two controls, or of two requests, one succeeds:
 *
 *     resume    own runner      ─► own runner                   marked as being resumed
 *     hand over own runner      ─► runner of another control    which finds it in SQL
 *     take      without an owner ─► own runner                  the control of that machine is gone
 *
 * Only what any runner can fetch is moved: the capture is in the object store, and no runner may have a VM or the disk of it.
 */
import { AppError } from '@coppice/contract';
import { sql, type RawBuilder } from 'kysely';
import type { Database } from '../../db/database.ts';
import { isAliveSql } from '../../ownership/live-controls.ts';
import { IS_ANSWERING } from '../../ownership/owners.ts';
import { ROW_COLUMNS } from './row-columns.ts';
import type { SandboxRow } from './sandbox-tables.ts';

/** A runner, and the epoch in which this control owns it. */
export interface OwnedEnd {
  id: string;
  epoch: number | undefined;
}

export type Move =
  | { kind: 'resume'; control: string; from: OwnedEnd; to: OwnedEnd }
  | { kind: 'hand over'; control: string; from: OwnedEnd; to: string }
  | { kind: 'take'; control: string; from: string; to: OwnedEnd };

/** A resume at the runner that has the sandbox already. */
export interface Stay {
  kind: 'stay';
  control: string;
  at: OwnedEnd;
}

/** Marks a sandbox as being resumed where it is. Throws `unavailable` if it, or the owner of the runner, has changed. */
export async function markResuming(
  db: Database,
  row: SandboxRow,
  { control, at }: Stay,
): Promise<SandboxRow> {
  const marked = await db
    .updateTable('sandboxes')
    .set({ is_resuming: true, version: row.version + 1, operation: null })
    .where('id', '=', row.id)
    .where('version', '=', row.version)
    .where('status', '=', row.status)
    .where('runner_id', '=', at.id)
    .where(isOwnedSql(at, control))
    .returning(ROW_COLUMNS)
    .executeTakeFirst();
  if (marked === undefined) throw changed(row);
  return marked;
}

/**
 * Returns the changed row. Throws `disk_in_use` while its disk is at the former runner, and `unavailable` if anything of it, or
 * the owner of a runner, has changed.
 */
export async function moveHibernated(db: Database, row: SandboxRow, move: Move): Promise<SandboxRow> {
  const moved = await update(db, row, move);
  if (moved !== undefined) return moved;
  const held = await db.selectFrom('disks').select('id').where('sandbox_id', '=', row.id).executeTakeFirst();
  if (held === undefined) throw changed(row);
  const message = `what the sandbox wrote to the disk ${JSON.stringify(row.disk_name)} is still being stored by the runner ${idOf(move.from)}; try again once that one has stored it`;
  throw new AppError('disk_in_use', message);
}

function update(db: Database, row: SandboxRow, move: Move): Promise<SandboxRow | undefined> {
  const [from, to] = [idOf(move.from), idOf(move.to)];
  return db
    .updateTable('sandboxes')
    .set({ runner_id: to, is_resuming: move.kind === 'resume', version: row.version + 1, operation: null })
    .where('id', '=', row.id)
    .where('version', '=', row.version)
    .where('status', '=', 'hibernated')
    .where('is_resuming', '=', false)
    .where('runner_id', '=', from)
    .where(IS_STORED)
    .where(sql<boolean>`NOT EXISTS (SELECT FROM disks WHERE disks.sandbox_id = sandboxes.id)`)
    .where(mayGive(move))
    .where(mayGet(move))
    .returning(ROW_COLUMNS)
    .executeTakeFirst();
}

const IS_STORED = sql<boolean>`EXISTS (
  SELECT FROM capture_objects
  WHERE capture_id = sandboxes.hibernation_id AND stored_at IS NOT NULL AND removed_at IS NULL)`;

function mayGive(move: Move): RawBuilder<boolean> {
  if (move.kind !== 'take') return isOwnedSql(move.from, move.control);
  // Joined runners have a new owner within seconds, which has the sandbox then.
  return sql<boolean>`EXISTS (
    SELECT FROM runners
    WHERE runners.id = ${move.from} AND runners.address IS NULL AND NOT ${isAliveSql('runners.owner')})`;
}

function mayGet(move: Move): RawBuilder<boolean> {
  if (move.kind !== 'hand over') return isOwnedSql(move.to, move.control);
  return sql<boolean>`EXISTS (
    SELECT FROM runners
    WHERE runners.id = ${move.to} AND revoked_at IS NULL AND owner <> ${move.control} AND ${IS_ANSWERING}
      AND ${isAliveSql('runners.owner')})`;
}

/** A runner that has not answered yet has no epoch here. Its owner is found in SQL all the same. */
function isOwnedSql({ id, epoch }: OwnedEnd, control: string): RawBuilder<boolean> {
  return sql<boolean>`EXISTS (
    SELECT FROM runners
    WHERE runners.id = ${id} AND owner = ${control} AND revoked_at IS NULL
      AND epoch = coalesce(${epoch ?? null}::bigint, epoch))`;
}

function idOf(end: OwnedEnd | string): string {
  return typeof end === 'string' ? end : end.id;
}

function changed({ id }: SandboxRow): AppError {
  return new AppError('unavailable', 'the sandbox was changed meanwhile; try again', { details: { id } });
}
