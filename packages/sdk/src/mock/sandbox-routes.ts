/** Sandboxes of the mocked service: create, find, change, fork, hibernate, destroy. */
import {
  AppError,
  CreateSandboxRequest,
  ForkRequest,
  formatImageReference,
  isFinal,
  ListSandboxesQuery,
  parseImageReference,
  PatchSandboxRequest,
  RestoreSandboxRequest,
  type SandboxRecord,
} from '@coppice/contract';
import {
  destroy,
  hibernate,
  requireAllowed,
  restartTimer,
  resume,
  type MockSandbox,
  type MockState,
} from './mock-state.ts';
import { answerJson, answerPage, parseBody, parseQuery, type MockRequest } from './mock-request.ts';
import { refuse } from './refusal.ts';

const DIGEST = `sha256:${'0'.repeat(64)}`;

export function createSandbox(request: MockRequest): Response {
  const body = parseBody(request, CreateSandboxRequest);
  if (body.disk !== undefined || body.fork_from_disk !== undefined) throw refuse('persistent disks');
  const image = resolveImage(body.image);
  request.state.requireFreeName(body.name);
  const { vcpus, mem_mib, disk_mib, timeout, labels } = body;
  const shape = { image, vcpus, mem_mib, disk_mib, timeout, labels };
  const sandbox = addSandbox(request.state, {
    ...shape,
    name: body.name ?? null,
    max_lifetime: body.max_lifetime ?? null,
    ends_at: toTimestamp(body.expires_at),
    auto_hibernate: body.auto_hibernate ?? false,
    cwd: body.cwd ?? null,
  });
  sandbox.env = body.env ?? {};
  return answerJson(201, sandbox.record);
}

export function restoreSandbox(request: MockRequest): Response {
  const body = parseBody(request, RestoreSandboxRequest);
  if (body.disk !== undefined) throw refuse('persistent disks');
  const { saved } = request.state.getSnapshot(body.snapshot_id);
  request.state.requireFreeName(body.name);
  const sandbox = addSandbox(request.state, {
    ...saved.record,
    name: body.name ?? null,
    timeout: body.timeout ?? saved.record.timeout,
    max_lifetime: body.max_lifetime === undefined ? saved.record.max_lifetime : body.max_lifetime,
    ends_at: toTimestamp(body.expires_at),
    labels: body.labels ?? saved.record.labels,
    auto_hibernate: body.auto_hibernate ?? saved.record.auto_hibernate,
    cwd: body.cwd === undefined ? saved.record.cwd : body.cwd,
    parent_id: saved.record.id,
  });
  sandbox.env = body.env ?? { ...saved.env };
  sandbox.files = new Map(saved.files);
  return answerJson(201, sandbox.record);
}

export function listSandboxes(request: MockRequest): Response {
  const { limit, cursor, name, label = [], status, team } = parseQuery(request, ListSandboxesQuery);
  if (team !== undefined) throw refuse('teams');
  const labels = label.map((text) => [text.slice(0, text.indexOf(':')), text.slice(text.indexOf(':') + 1)]);
  const matches = (record: SandboxRecord): boolean =>
    (status === undefined ? !isFinal(record.status) : status.includes(record.status)) &&
    (name === undefined || record.name === name) &&
    labels.every(([key = '', value]) => record.labels[key] === value);
  const records = [...request.state.sandboxes.values()].map(({ record }) => record);
  return answerPage(request, records.filter(matches).reverse(), { limit, cursor });
}

export function getSandbox({ state, ids: [id = ''] }: MockRequest): Response {
  return answerJson(200, state.getSandbox(id).record);
}

export function patchSandbox(request: MockRequest): Response {
  const sandbox = request.state.getSandbox(request.ids[0] ?? '');
  const body = parseBody(request, PatchSandboxRequest);
  requireAllowed(sandbox, 'configure');
  request.state.requireFreeName(body.name, sandbox);
  const { env, expires_at, max_lifetime, ...settings } = body;
  const given = Object.entries(settings).filter(([, value]) => value !== undefined);
  Object.assign(sandbox.record, Object.fromEntries(given));
  if (max_lifetime !== undefined) sandbox.record.max_lifetime = max_lifetime === 0 ? null : max_lifetime;
  if (expires_at !== undefined) sandbox.record.ends_at = toTimestamp(expires_at);
  if (env !== undefined) sandbox.env = env;
  restartTimer(sandbox);
  return answerJson(200, sandbox.record);
}

export function destroySandbox({ state, ids: [id = ''] }: MockRequest): Response {
  const sandbox = state.getSandbox(id);
  requireAllowed(sandbox, 'destroy');
  return answerJson(200, destroy(sandbox));
}

export function hibernateSandbox({ state, ids: [id = ''] }: MockRequest): Response {
  const sandbox = state.getSandbox(id);
  requireAllowed(sandbox, 'hibernate');
  hibernate(sandbox);
  return answerJson(200, sandbox.record);
}

export function resumeSandbox({ state, ids: [id = ''] }: MockRequest): Response {
  const sandbox = state.getSandbox(id);
  requireAllowed(sandbox, 'resume');
  resume(sandbox);
  return answerJson(200, sandbox.record);
}

export function forkSandbox(request: MockRequest): Response {
  const parent = request.state.getSandbox(request.ids[0] ?? '');
  const { count, disks } = parseBody(request, ForkRequest);
  if (disks !== undefined) throw refuse('persistent disks');
  requireAllowed(parent, 'fork');
  const children = Array.from({ length: count }, () => {
    const child = addSandbox(request.state, { ...parent.record, name: null, parent_id: parent.record.id });
    child.env = { ...parent.env };
    child.files = new Map(parent.files);
    return child.record;
  });
  return answerJson(201, children);
}

type Settings = Pick<
  SandboxRecord,
  | 'image'
  | 'vcpus'
  | 'mem_mib'
  | 'disk_mib'
  | 'timeout'
  | 'labels'
  | 'name'
  | 'max_lifetime'
  | 'ends_at'
  | 'auto_hibernate'
  | 'cwd'
> & { parent_id?: string | null };

function addSandbox(state: MockState, settings: Settings): MockSandbox {
  const id = state.newId('run');
  const createdAtMs = Date.now();
  const record: SandboxRecord = {
    ...settings,
    labels: { ...settings.labels },
    parent_id: settings.parent_id ?? null,
    id,
    status: 'running',
    status_reason: null,
    operation: null,
    team_id: 'team-mock',
    region: 'us',
    expires_at: null,
    disk: null,
    audit_key_id: 'audit-key-mock',
    create_ms: 1,
    created_at: new Date(createdAtMs).toISOString(),
    hibernated_at: null,
    billed_ms: 0,
    running_since: new Date(createdAtMs).toISOString(),
    ended_at: null,
  };
  const sandbox = { record, env: {}, files: new Map(), createdAtMs, hibernatedMs: 0 };
  restartTimer(sandbox);
  state.sandboxes.set(id, sandbox);
  return sandbox;
}

/** Returns the full reference, with a made-up digest unless the caller gives one. */
function resolveImage(text: string): string {
  return formatImageReference({ digest: DIGEST, ...parseImageReference(text) });
}

/** Throws `invalid_request` for a time that has passed. */
function toTimestamp(atMs: number | null | undefined): string | null {
  if (atMs === null || atMs === undefined) return null;
  if (atMs <= Date.now()) throw new AppError('invalid_request', 'expires_at: must be in the future');
  return new Date(atMs).toISOString();
}
