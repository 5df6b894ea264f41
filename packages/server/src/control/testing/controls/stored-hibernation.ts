import assert from 'node:assert/strict';
import type { SandboxRecord } from '@coppice/contract';
import type { ControlHarness } from '../control-harness.ts';

/** Notes in SQL that the capture of a hibernated sandbox is in the object store. */
async function noteStored(harness: ControlHarness, id: string): Promise<string> {
  await using db = harness.openDatabase();
  const row = await db
    .selectFrom('sandboxes')
    .select(['hibernation_id', 'organization_id', 'runner_id'])
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
  assert.ok(row.hibernation_id !== null && row.runner_id !== null);
  const { hibernation_id: capture_id, organization_id, runner_id } = row;
  await db
    .insertInto('capture_objects')
    .values({ capture_id, organization_id, runner_id, created_at: 1, stored_at: 2 })
    .execute();
  return capture_id;
}

/** Hibernates a sandbox. Resolves when its capture counts as stored, with the id of the capture. */
export async function hibernateStored(
  harness: ControlHarness,
  { id }: Pick<SandboxRecord, 'id'>,
): Promise<string> {
  assert.equal((await harness.call('POST', `/v1/runs/${id}/hibernate`)).status, 200);
  return noteStored(harness, id);
}

/** Returns the runner that a sandbox belongs to, and whether it may be about to run. */
export async function readPlace(
  harness: ControlHarness,
  id: string,
): Promise<{ status: string; runner_id: string | null; is_resuming: boolean }> {
  await using db = harness.openDatabase();
  return await db
    .selectFrom('sandboxes')
    .select(['status', 'runner_id', 'is_resuming'])
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
}
