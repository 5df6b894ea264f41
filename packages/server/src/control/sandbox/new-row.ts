/** The record of a sandbox as it begins. Pure. */
import type { CreateSandboxRequest, RestoreSandboxRequest } from '@coppice/contract';
import type { HostMoment } from '../../lib/host-clock.ts';
import type { NewSandboxRow, SandboxRow, SnapshotRow } from '../db/tables.ts';

interface Beginning {
  id: string;
  region: string;
  now: HostMoment;
}

type Times =
  | 'created_at'
  | 'last_active_at'
  | 'last_seen_at'
  | 'boot_id'
  | 'created_boot_ms'
  | 'last_seen_boot_ms';

export function buildCreatedRow(
  { id, region, now }: Beginning,
  organizationId: string,
  request: CreateSandboxRequest,
): NewSandboxRow {
  return {
    id,
    organization_id: organizationId,
    status: 'creating',
    image: request.image,
    region,
    vcpus: request.vcpus,
    mem_mib: request.mem_mib,
    disk_mib: request.disk_mib,
    timeout_s: request.timeout,
    max_lifetime_s: request.max_lifetime ?? null,
    auto_hibernate: request.auto_hibernate ?? false,
    labels: JSON.stringify(request.labels),
    ...buildTimes(now),
  };
}

/** A child is what its parent is, but for its age. */
export function buildChildRow(
  { id, region, now }: Beginning,
  parent: SandboxRow,
  forkId: string,
): NewSandboxRow {
  return {
    id,
    organization_id: parent.organization_id,
    status: 'creating',
    image: parent.image,
    region,
    vcpus: parent.vcpus,
    mem_mib: parent.mem_mib,
    disk_mib: parent.disk_mib,
    timeout_s: parent.timeout_s,
    max_lifetime_s: parent.max_lifetime_s,
    auto_hibernate: parent.auto_hibernate,
    labels: JSON.stringify(parent.labels),
    parent_id: parent.id,
    origin: forkId,
    ...buildTimes(now),
  };
}

/** What the request leaves out is as it was when the snapshot was taken. */
export function buildRestoredRow(
  { id, region, now }: Beginning,
  snapshot: SnapshotRow,
  request: RestoreSandboxRequest,
): NewSandboxRow {
  const { timeout, max_lifetime, labels, auto_hibernate } = request;
  return {
    id,
    organization_id: snapshot.organization_id,
    status: 'creating',
    image: snapshot.image,
    region,
    vcpus: snapshot.vcpus,
    mem_mib: snapshot.mem_mib,
    disk_mib: snapshot.disk_mib,
    timeout_s: timeout ?? snapshot.timeout_s,
    max_lifetime_s: max_lifetime === undefined ? snapshot.max_lifetime_s : max_lifetime,
    auto_hibernate: auto_hibernate ?? snapshot.auto_hibernate,
    labels: JSON.stringify(labels ?? snapshot.labels),
    parent_id: snapshot.run_id,
    origin: snapshot.id,
    ...buildTimes(now),
  };
}

function buildTimes(now: HostMoment): Pick<NewSandboxRow, Times> {
  return {
    created_at: now.wallMs,
    last_active_at: now.wallMs,
    last_seen_at: now.wallMs,
    boot_id: now.bootId,
    created_boot_ms: now.bootMs,
    last_seen_boot_ms: now.bootMs,
  };
}
