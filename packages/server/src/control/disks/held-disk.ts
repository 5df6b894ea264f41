/**
 * The holder of each disk, in SQL. A disk follows its sandbox, in the transaction that changes the sandbox:
 *
 *     sandbox   creating ───────► running ──────► hibernated ─ resume ─► running ────► ended
 *     disk      attached          attached        detaching    attaching  attached     detaching ─► free
 *                  │ the sandbox fails                                                            when the runner says so
 *                  └─► detaching; a disk that was made for this sandbox is deleted
 */
import type { SandboxState } from '@coppice/contract';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { isAliveSql, isOwnRunnerSql } from '../ownership/live-controls.ts';

/** A sandbox with a disk, as far as its disk depends on it. */
export interface Holder {
  id: string;
  status: SandboxState;
  disk_id: string | null;
}

/** Brings the disk in line with the new state of its sandbox. Call in the transaction of that change. */
export async function followHolder(transaction: Database, { id, status, disk_id }: Holder): Promise<void> {
  if (status === 'running') {
    await sql`
      UPDATE disks SET sandbox_id = ${id}, attachment = 'attached', status = 'ready'
      WHERE id = ${disk_id} AND (sandbox_id IS NULL OR sandbox_id = ${id}) AND status <> 'deleting'`.execute(
      transaction,
    );
  } else {
    await sql`
      UPDATE disks SET attachment = 'detaching',
        status = CASE WHEN status = 'creating' THEN 'deleting' ELSE status END
      WHERE sandbox_id = ${id}`.execute(transaction);
  }
}

/** Gives a free disk to a hibernated sandbox that is being resumed. Returns false if it is not free. */
export async function takeAgain(db: Database, { id, disk_id }: Holder): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('disks')
    .set({ sandbox_id: id, attachment: 'attaching' })
    .where('id', '=', disk_id)
    .where('status', '=', 'ready')
    .where('sandbox_id', 'is', null)
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}

/** Makes the disk of a resume that failed, or of which nothing is known, free as soon as the runner does not hold it. */
export async function giveBack(db: Database, sandboxId: string): Promise<void> {
  await db
    .updateTable('disks')
    .set({ attachment: 'detaching' })
    .where('sandbox_id', '=', sandboxId)
    .where('attachment', '=', 'attaching')
    .execute();
}

/**
 * Does {@link giveBack} for resumes that are over: their sandboxes are not about to run, or no control owns their runner, so that an
 * earlier process began them.
 */
export async function giveBackLeft(db: Database): Promise<void> {
  await sql`
    UPDATE disks SET attachment = 'detaching'
    FROM sandboxes LEFT JOIN runners ON runners.id = runner_id
    WHERE attachment = 'attaching' AND sandboxes.id = sandbox_id
      AND NOT (is_resuming AND ${isAliveSql('runners.owner')})`.execute(db);
}

/** Frees a disk that the runner no longer holds for this sandbox. */
export async function freeDisk(db: Database, id: string, sandboxId: string): Promise<void> {
  await db
    .updateTable('disks')
    .set({ sandbox_id: null, attachment: null, stored_version: null })
    .where('id', '=', id)
    .where('sandbox_id', '=', sandboxId)
    .where('attachment', '=', 'detaching')
    .execute();
}

/** Returns the runner of the sandbox that has the disk, also of one that has ended and not given it back yet. */
export async function findHolderRunner(db: Database, diskId: string): Promise<string | undefined> {
  const row = await db
    .selectFrom('disks')
    .innerJoin('sandboxes', 'sandboxes.id', 'disks.sandbox_id')
    .select('sandboxes.runner_id')
    .where('disks.id', '=', diskId)
    .executeTakeFirst();
  return row?.runner_id ?? undefined;
}

export interface DetachingRow {
  id: string;
  organization_id: string;
  sandbox_id: string;
}

export async function isDetaching(db: Database, { id, sandbox_id }: DetachingRow): Promise<boolean> {
  const row = await db
    .selectFrom('disks')
    .select('id')
    .where('id', '=', id)
    .where('sandbox_id', '=', sandbox_id)
    .where('attachment', '=', 'detaching')
    .executeTakeFirst();
  return row !== undefined;
}

/** Lists those of sandboxes whose runner this control owns: only that runner knows whether it still holds the disk. */
export async function listDetaching(db: Database, control: string): Promise<DetachingRow[]> {
  const rows = await selectDetaching(db).where(isOwnRunnerSql('runner_id', control)).execute();
  return rows.flatMap(({ sandbox_id, ...row }) => (sandbox_id === null ? [] : [{ ...row, sandbox_id }]));
}

/** Returns the state, as last seen, of disks that are being detached from these sandboxes, by sandbox. */
export async function findDetachingOf(
  db: Database,
  sandboxIds: readonly string[],
): Promise<Map<string, { dirtyBytes: number; waitsFor: string | null }>> {
  if (sandboxIds.length === 0) return new Map();
  const rows = await db
    .selectFrom('disks')
    .select(['sandbox_id', 'dirty_bytes', 'waits_for'])
    .where('sandbox_id', 'in', [...sandboxIds])
    .where('attachment', '=', 'detaching')
    .execute();
  return new Map(
    rows.flatMap(({ sandbox_id: id, dirty_bytes: dirtyBytes, waits_for: waitsFor }) =>
      id === null ? [] : [[id, { dirtyBytes, waitsFor }] as const],
    ),
  );
}

export async function findDetaching(db: Database, sandboxId: string): Promise<DetachingRow | undefined> {
  const row = await selectDetaching(db).where('disks.sandbox_id', '=', sandboxId).executeTakeFirst();
  return row === undefined ? undefined : { ...row, sandbox_id: sandboxId };
}

function selectDetaching(db: Database) {
  return db
    .selectFrom('disks')
    .innerJoin('sandboxes', 'sandboxes.id', 'disks.sandbox_id')
    .select(['disks.id', 'disks.organization_id', 'disks.sandbox_id'])
    .where('disks.attachment', '=', 'detaching');
}
