/** Snapshots of the mocked service. */
import {
  AppError,
  CreateSnapshotRequest,
  ListSnapshotsQuery,
  PatchSnapshotRequest,
  RollbackRequest,
  type SnapshotRecord,
} from '@coppice/contract';
import { requireAllowed } from './mock-state.ts';
import {
  answerEmpty,
  answerJson,
  answerPage,
  parseBody,
  parseQuery,
  type MockRequest,
} from './mock-request.ts';

export function takeSnapshot(request: MockRequest): Response {
  const { state, ids } = request;
  const sandbox = state.getSandbox(ids[0] ?? '');
  const { name, expires_in, expires_at } = parseBody(request, CreateSnapshotRequest);
  requireAllowed(sandbox, 'snapshot');
  const { image, vcpus, mem_mib, disk_mib } = sandbox.record;
  const expiresAtMs = expires_in === undefined ? expires_at : Date.now() + expires_in * 1000;
  const record: SnapshotRecord = {
    id: state.newId('snap'),
    run_id: sandbox.record.id,
    name: name ?? null,
    image,
    vcpus,
    mem_mib,
    disk_mib,
    disk: null,
    size_bytes: mem_mib * 2 ** 20,
    bound_to: {},
    created_at: new Date().toISOString(),
    expires_at: expiresAtMs === undefined ? null : new Date(expiresAtMs).toISOString(),
  };
  const { env, files } = sandbox;
  const saved = { record: structuredClone(sandbox.record), env: { ...env }, files: new Map(files) };
  state.snapshots.set(record.id, { record, saved });
  return answerJson(201, record);
}

export function listSnapshots(request: MockRequest): Response {
  const { limit, cursor, run_id } = parseQuery(request, ListSnapshotsQuery);
  const records = [...request.state.snapshots.values()].map(({ record }) => record);
  const matching = records.filter((record) => run_id === undefined || record.run_id === run_id);
  return answerPage(request, matching.reverse(), { limit, cursor });
}

export function getSnapshot({ state, ids: [id = ''] }: MockRequest): Response {
  return answerJson(200, state.getSnapshot(id).record);
}

export function patchSnapshot(request: MockRequest): Response {
  const { record } = request.state.getSnapshot(request.ids[0] ?? '');
  const { name, expires_at } = parseBody(request, PatchSnapshotRequest);
  if (name !== undefined) record.name = name;
  if (expires_at !== undefined)
    record.expires_at = expires_at === null ? null : new Date(expires_at).toISOString();
  return answerJson(200, record);
}

export function deleteSnapshot({ state, ids: [id = ''] }: MockRequest): Response {
  state.getSnapshot(id);
  state.snapshots.delete(id);
  return answerEmpty();
}

/** Returns a sandbox to a snapshot of itself or of an ancestor: its files are those of the snapshot again. */
export function rollBack(request: MockRequest): Response {
  const { state, ids } = request;
  const sandbox = state.getSandbox(ids[0] ?? '');
  const { snapshot_id } = parseBody(request, RollbackRequest);
  const { record, saved } = state.getSnapshot(snapshot_id);
  requireAllowed(sandbox, 'rollback');
  let ancestor: string | null = sandbox.record.id;
  while (ancestor !== null && ancestor !== record.run_id)
    ancestor = state.sandboxes.get(ancestor)?.record.parent_id ?? null;
  if (ancestor === null)
    throw new AppError(
      'invalid_state',
      'the snapshot is of another sandbox, which is no ancestor of this one',
    );
  sandbox.files = new Map(saved.files);
  return answerJson(200, sandbox.record);
}
