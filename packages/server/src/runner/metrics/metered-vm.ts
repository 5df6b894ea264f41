import type { VmInfo } from '../../lib/protocol/runner-protocol.ts';
import type { ProcessUsage } from '../host/host-process.ts';
import type { BlockTraffic } from '../vm/vmm.ts';

/** A VM as it is measured, once. */
export interface MeteredVm {
  /** Name of the VM instance: another VM of the same sandbox has another one. */
  readonly unit: string;
  readonly info: Pick<VmInfo, 'vcpus' | 'mem_mib' | 'disk_mib'>;
  readonly isUp: boolean;
  /** Its persistent disk; undefined without one. */
  readonly workspace: { record: { size_bytes: number }; dirtyBytes: number } | undefined;
  /** Whether its sandbox lives on without it: hibernated, or with another VM. */
  isRetired: () => boolean;
  /** Returns the files of the scratch disk of a VM that is up. */
  listOverlayPaths: () => string[];
  /** Returns undefined if its process is gone. */
  sampleUsage: () => ProcessUsage | undefined;
  /** Rejects if the VMM does not answer in time. */
  readBlockTraffic: () => Promise<BlockTraffic>;
}
