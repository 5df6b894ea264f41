/** How a fake runner is: its status, its roster and its heartbeats. */
import type { ServerHttp2Stream } from 'node:http2';
import { hostMoment, type HostMoment } from '../../../lib/host-clock.ts';
import { digestRoster } from '../../../lib/protocol/roster-digest.ts';
import {
  toBootMoment,
  type Accelerator,
  type CapacityStatus,
  type CgroupStatus,
  type Heartbeat,
  type Roster,
  type VmInfo,
} from '../../../lib/protocol/runner-protocol.ts';
import { EPOCH_HEADER, REFUSED_STATUS, type ProtocolVersions } from '../../../lib/protocol/wire-headers.ts';
import { answer } from './fake-answers.ts';

/** The parts of a fake runner that it reports. */
interface Reported {
  id: string;
  protocol: ProtocolVersions;
  epoch: number;
  vms: ReadonlyMap<string, VmInfo>;
  maxVcpus: number;
  maxMemMib: number;
  networkAbsence: string;
  accelerator: Accelerator;
  host: (() => HostMoment) | undefined;
  captures: { restoring: ReadonlySet<string> };
}

export function reportRoster({ id, vms, captures, host = hostMoment }: Reported): Roster {
  const starting = [...captures.restoring];
  return { runner_id: id, moment: toBootMoment(host()), vms: [...vms.values()], starting };
}

export function reportHeartbeat(runner: Reported): Heartbeat {
  const { runner_id, moment, vms } = reportRoster(runner);
  const capacity = reportCapacity(runner);
  return { type: 'heartbeat', runner_id, moment, capacity, roster: digestRoster(vms) };
}

function reportCapacity({ maxMemMib, maxVcpus }: Reported): CapacityStatus {
  return {
    mem_mib: { promised: 0, limit: maxMemMib },
    vcpus: { promised: 0, limit: maxVcpus },
    mem_available_mib: maxMemMib,
    starts: { running: 0, waiting: 0 },
    disk: { free_mib: 4096, reserve_mib: 2048 },
  };
}

export function reportStatus(runner: Reported): object {
  const { id, protocol, epoch, accelerator, networkAbsence, maxVcpus, maxMemMib, vms } = runner;
  const cgroups: CgroupStatus = { controllers: [], reason: 'a fake' };
  return {
    runner_id: id,
    protocol,
    epoch,
    accelerator,
    accelerator_reason: 'a fake',
    confinement: 'reduced',
    confinement_reason: 'a fake',
    network: networkAbsence === '' ? 'filtered' : 'none',
    network_reason: networkAbsence,
    max_vcpus: maxVcpus,
    max_mem_mib: maxMemMib,
    vms: vms.size,
    paused_vms: 0,
    capacity: reportCapacity(runner),
    cgroups,
  };
}

/** Refuses a request with a lower epoch than the highest so far, as the real runner does. */
export function passFence(
  runner: { epoch: number },
  stream: ServerHttp2Stream,
  headers: Readonly<Record<string, unknown>>,
): boolean {
  if (headers[':path'] === '/status') return true;
  const epoch = Number(headers[EPOCH_HEADER] ?? runner.epoch);
  if (epoch < runner.epoch) {
    answer(stream, REFUSED_STATUS, {
      error: { code: 'fenced', message: 'another control owns this runner' },
    });
    return false;
  }
  runner.epoch = epoch;
  return true;
}
