/** What a sandbox has used of the machine, over all the VMs that it had one after the other. Pure. */
import type { VmUsage } from '../../../lib/protocol/runner-protocol.ts';
import type { SandboxRow } from './sandbox-tables.ts';

type Used = Pick<SandboxRow, 'cpu_ms' | 'mem_peak_bytes'>;

/** With the VM that has just gone; undefined when nobody measured it. */
export function addUsage(row: Used, vm: VmUsage | undefined): Used {
  return {
    cpu_ms: row.cpu_ms + (vm?.cpu_ms ?? 0),
    mem_peak_bytes: Math.max(row.mem_peak_bytes, vm?.mem_peak_bytes ?? 0),
  };
}
