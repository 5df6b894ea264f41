/** Parts of a VM's driver, and its changes of the VM's record. */
import type { Logger } from 'pino';
import type { VmEgress } from '../../lib/protocol/egress-protocol.ts';
import type { VmEnd, VmInfo, VmRollback } from '../../lib/protocol/runner-protocol.ts';
import type { GroupUsage } from '../confinement/cgroup-usage.ts';
import type { VmRecord } from '../vm/vm-record.ts';

export interface DriverHooks {
  /** Writes a change to the VM's record on disk, before the change is carried out. */
  note: (change: RecordChange) => void;
  /** Resolves when notes of everything the VM has sent are stored. Called once the VMM is gone. */
  endEgress: () => Promise<void>;
  /** Makes the end durable. Called after `endEgress` and before anything is released. */
  recordEnd: (end: VmEnd) => void | Promise<void>;
  /** Reads the usage that the VM's control groups have counted. Called when its process is gone. */
  groupUsage: () => GroupUsage;
  /** Returns the last rollback that led to the VM. */
  findRollback: () => VmRollback | undefined;
}

export interface DriverParts {
  info: VmInfo;
  egress: VmEgress;
  /** Counters of the saved state. */
  counters: AgentCounters;
  hooks: DriverHooks;
  log: Logger;
}

export type RecordChange = Partial<
  Pick<VmRecord, 'generation' | 'capturing' | 'hibernating' | 'end' | 'retired' | 'egress'>
>;

/** The last numbers sent to the agent; a copy of the VM continues from them. */
export interface AgentCounters {
  /** Generation of the last session. */
  session: number;
  /** Number of the last `resume`: the agent performs each only once, and none with a lower number. */
  resume: number;
}
