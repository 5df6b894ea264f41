/** Builds the row of a new sandbox. Pure. */
import type { CreateSandboxRequest, NetworkPolicy, RestoreSandboxRequest } from '@coppice/contract';
import type { Owner } from '../../accounts/organizations/organization-store.ts';
import type { AuditNote } from '../../audit/audit-chain.ts';
import { describePolicy } from '../../egress/egress-audit.ts';
import type { HostMoment } from '../../../lib/host-clock.ts';
import type { NewSandboxRow, SandboxRow } from './sandbox-tables.ts';
import type { WholeSnapshotRow } from '../../snapshots/snapshot-tables.ts';
import { isSnapshotId } from './ids.ts';
import { checkEnd } from './settings.ts';

interface Beginning {
  id: string;
  region: string;
  /** The runner that will have its VM. */
  runnerId: string;
  now: HostMoment;
}

interface Asked<T> {
  request: T;
  /** The variables of the sandbox, sealed for it. */
  sealedEnv: Buffer | null;
}

type Times =
  | 'created_at'
  | 'last_active_at'
  | 'last_seen_at'
  | 'boot_id'
  | 'created_boot_ms'
  | 'last_seen_boot_ms';

/** Builds the row of a create. Throws `invalid_request` for an end that has passed. */
export function buildCreatedRow(
  { id, region, runnerId, now }: Beginning,
  { organizationId, teamId }: Owner,
  { request, network, sealedEnv }: Asked<CreateSandboxRequest> & { network: NetworkPolicy | null },
): NewSandboxRow {
  return {
    id,
    organization_id: organizationId,
    team_id: teamId,
    name: request.name ?? null,
    image: request.image,
    region,
    runner_id: runnerId,
    vcpus: request.vcpus,
    mem_mib: request.mem_mib,
    disk_mib: request.disk_mib,
    timeout_s: request.timeout,
    max_lifetime_s: request.max_lifetime ?? null,
    ends_at: checkEnd(request.expires_at ?? null, now),
    auto_hibernate: request.auto_hibernate ?? false,
    labels: JSON.stringify(request.labels),
    network,
    sealed_env: sealedEnv,
    cwd: request.cwd ?? null,
    ...buildTimes(now),
  };
}

/** Builds the row of a fork's child. It inherits everything from its parent except the name and the age. */
export function buildChildRow(
  { id, region, runnerId, now }: Beginning,
  parent: SandboxRow,
  { forkId, sealedEnv }: { forkId: string; sealedEnv: Buffer | null },
): NewSandboxRow {
  return {
    id,
    organization_id: parent.organization_id,
    team_id: parent.team_id,
    image: parent.image,
    region,
    runner_id: runnerId,
    vcpus: parent.vcpus,
    mem_mib: parent.mem_mib,
    disk_mib: parent.disk_mib,
    timeout_s: parent.timeout_s,
    max_lifetime_s: parent.max_lifetime_s,
    ends_at: parent.ends_at,
    auto_hibernate: parent.auto_hibernate,
    labels: JSON.stringify(parent.labels),
    network: parent.network,
    sealed_env: sealedEnv,
    cwd: parent.cwd,
    parent_id: parent.id,
    origin: forkId,
    ...buildTimes(now),
  };
}

/**
 * Builds the row of a sandbox from a snapshot. Fields missing in the request are as they were when the snapshot was
 * taken, but name and end are not inherited; a missing `network` is undefined. Throws `invalid_request` for an end that
 * has passed.
 */
export function buildRestoredRow(
  { id, region, runnerId, now }: Beginning,
  { snapshot, teamId }: { snapshot: WholeSnapshotRow; teamId: string },
  {
    request,
    network,
    sealedEnv,
  }: Asked<RestoreSandboxRequest> & { network: NetworkPolicy | null | undefined },
): NewSandboxRow {
  const { name, timeout, max_lifetime, expires_at, labels, auto_hibernate, cwd } = request;
  return {
    id,
    organization_id: snapshot.organization_id,
    team_id: teamId,
    name: name ?? null,
    image: snapshot.image,
    region,
    runner_id: runnerId,
    vcpus: snapshot.vcpus,
    mem_mib: snapshot.mem_mib,
    disk_mib: snapshot.disk_mib,
    timeout_s: timeout ?? snapshot.timeout_s,
    max_lifetime_s: max_lifetime === undefined ? snapshot.max_lifetime_s : max_lifetime,
    ends_at: checkEnd(expires_at ?? null, now),
    auto_hibernate: auto_hibernate ?? snapshot.auto_hibernate,
    labels: JSON.stringify(labels ?? snapshot.labels),
    network: network === undefined ? snapshot.network : network,
    sealed_env: sealedEnv,
    cwd: cwd === undefined ? snapshot.cwd : cwd,
    parent_id: snapshot.run_id,
    origin: snapshot.id,
    ...buildTimes(now),
  };
}

/** Builds the first entry of the audit log: the image, shape and origin of the sandbox. */
export function buildCreatedNote({
  name,
  image,
  vcpus,
  mem_mib,
  disk_mib,
  parent_id,
  origin,
  network,
}: SandboxRow): AuditNote {
  return {
    event: 'sandbox.created',
    data: {
      image,
      vcpus,
      mem_mib,
      disk_mib,
      ...(name === null ? {} : { name }),
      ...(parent_id === null ? {} : { parent: parent_id }),
      ...(isSnapshotId(origin) ? { snapshot_id: origin } : {}),
      ...(network === null ? {} : { network: describePolicy(network) }),
    },
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
