/** Usage of the machine by a sandbox, over all VMs that it had one after the other. Pure. */
import type { VmUsage } from '../../../lib/protocol/runner-protocol.ts';
import type { SandboxRow } from './sandbox-tables.ts';

type Used = Pick<SandboxRow, 'cpu_ms' | 'mem_peak_bytes'>;

/** Adds the usage of a VM that is now gone; `vm` is undefined if it was not measured. */
export function addUsage(row: Used, vm: VmUsage | undefined): Used {
  return {
    cpu_ms: row.cpu_ms + (vm?.cpu_ms ?? 0),
    mem_peak_bytes: Math.max(row.mem_peak_bytes, vm?.mem_peak_bytes ?? 0),
  };
}
