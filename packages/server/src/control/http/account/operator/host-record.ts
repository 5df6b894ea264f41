import type { HostRecord } from '@coppice/contract';
import type { RunnerMetrics } from '../../../../lib/protocol/metrics-protocol.ts';
import type { ListedRunner } from '../../../authority/joined-runners.ts';
import type { ListedControl } from '../../../ownership/live-controls.ts';
import { HEARD_MS } from '../../../ownership/owners.ts';

type HostRunner = HostRecord['runners'][number];

/** A runner as its own control knows it, if that is the one that answers. */
export interface SeenRunner {
  isConnected: boolean;
  ageMs: number | undefined;
  /** Undefined if it does not answer. */
  measured: RunnerMetrics | undefined;
}

export function buildControl(listed: ListedControl, answering: string): HostRecord['controls'][number] {
  const { id, version, address, startedAt, isLeading, runners } = listed;
  const started_at = new Date(startedAt).toISOString();
  return { id, version, address, started_at, leading: isLeading, answers: id === answering, runners };
}

/** `seen`: undefined for a runner of another control, which has reported it. */
export function buildRunner(listed: ListedRunner, seen: SeenRunner | undefined): HostRunner {
  const { id, region, address, owner, isOwned, cordonedAt, isDraining, report } = listed;
  const heardMs = seen?.ageMs ?? listed.heardAgoMs;
  const isConnected = seen?.isConnected ?? (heardMs !== null && heardMs < HEARD_MS);
  const measured = seen === undefined ? report : seen.measured;
  return {
    id,
    state: isOwned ? (isConnected ? 'connected' : 'away') : 'unowned',
    cordoned: cordonedAt !== null,
    draining: isDraining,
    region,
    address,
    control: isOwned ? owner : null,
    heard_seconds_ago: heardMs === null ? null : Math.max(0, heardMs) / 1000,
    measured: measured === undefined ? null : buildMeasured(measured),
  };
}

function buildMeasured(measured: RunnerMetrics): NonNullable<HostRunner['measured']> {
  const { accelerator, confinement, versions, vms, paused_vms: paused } = measured;
  const { capacity, warm_pool, disks } = measured;
  const { qemu, kernel, agent } = versions;
  return {
    accelerator,
    confinement,
    versions: { qemu, kernel, agent },
    sandboxes: vms,
    paused,
    vcpus: capacity.vcpus,
    mem_mib: capacity.mem_mib,
    mem_available_mib: capacity.mem_available_mib,
    disk_free_mib: capacity.disk.free_mib,
    disk_reserve_mib: capacity.disk.reserve_mib,
    starts: capacity.starts,
    warm_pool,
    disks,
  };
}
