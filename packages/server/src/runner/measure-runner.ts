/** Measures the runner as a whole, for the operator. */
import type { RunnerMetrics } from '../lib/protocol/metrics-protocol.ts';
import type { Accelerators } from './accelerator/accelerators.ts';
import type { ConfinementChoice } from './confinement/confinement-probe.ts';
import type { MachineStore } from './machine/machine-store.ts';
import type { OpenedFleet } from './open-fleet.ts';
import type { Attachment } from './workspace/attachment.ts';

interface MeasuredParts extends Pick<OpenedFleet, 'fleet' | 'capacity' | 'workspaces'> {
  accelerators: Accelerators;
  confinement: ConfinementChoice;
  machines: Pick<MachineStore, 'current'>;
}

export function measureRunner(parts: MeasuredParts): RunnerMetrics {
  const { fleet, capacity, workspaces, accelerators, confinement, machines } = parts;
  const { key: machine, versions } = machines.current;
  const { user, system } = process.cpuUsage();
  return {
    versions: { machine, ...versions },
    accelerator: accelerators.current.accelerator,
    confinement: confinement.kind,
    vms: fleet.vms.countByPhase(),
    paused_vms: fleet.vms.pausedCount,
    capacity: capacity.status,
    warm_pool: fleet.warmPool,
    disks: summarizeDisks(workspaces.attachments),
    process: { cpu_ms: Math.round((user + system) / 1000), resident_bytes: process.memoryUsage.rss() },
  };
}

function summarizeDisks(attachments: readonly Attachment[]): RunnerMetrics['disks'] {
  const described = attachments.map((attachment) => attachment.describe());
  const detaching = described.filter(({ state }) => state === 'detaching').length;
  return {
    attached: described.length - detaching,
    detaching,
    waiting: described.filter(({ waits_for }) => waits_for !== null).length,
    dirty_bytes: described.reduce((sum, { dirty_bytes }) => sum + dirty_bytes, 0),
  };
}
