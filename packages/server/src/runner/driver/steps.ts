/**
 * Every step at which the runner makes or takes away something outside its own memory, in the order of a VM's life. An
 * undoing is registered before its step: in the driver's release list for this process, on disk for the next one. Each
 * can be held by a test, which then kills somebody there (e2e/faults.test.ts).
 */
import { holdAt } from '../../lib/fault-directory.ts';

interface Step {
  makes: string;
  /** By this process when the step, or a later one, fails. */
  undoneBy: string;
  /** By the next process, when this one is killed. */
  nextProcess: string;
}

const NOTHING = 'nothing';

export const STEPS = {
  'create.plan': {
    makes: 'image and template',
    undoneBy: 'kept: they are shared',
    nextProcess: 'removes half-made ones',
  },
  'create.slot': {
    makes: 'lease of a TAP with its addresses and uid',
    undoneBy: 'release of the slot',
    nextProcess: 'removes TAPs that no adopted VM has',
  },
  'create.record': {
    makes: 'directory of the VM, with the record that names all that follows',
    undoneBy: 'removal of the directory',
    nextProcess: 'removes directories without a record, ends VMs whose record is not "running"',
  },
  'create.disk': {
    makes: 'scratch overlay and directory of sockets',
    undoneBy: 'removal of both directories',
    nextProcess: 'as for the record',
  },
  'create.launch': {
    makes: 'QEMU, with the state of the template',
    undoneBy: 'SIGKILL, waited for',
    nextProcess: 'kills processes of our uids that no adopted VM has',
  },
  'create.note': { makes: "QEMU's pid in the record", undoneBy: 'as for the record', nextProcess: NOTHING },
  'create.continue': { makes: 'a guest that runs', undoneBy: 'as for QEMU', nextProcess: 'as for QEMU' },
  'create.agent': { makes: 'session with the agent', undoneBy: 'its close', nextProcess: NOTHING },
  'create.resume': { makes: 'identity in the guest', undoneBy: 'as for QEMU', nextProcess: 'as for QEMU' },
  'create.running': {
    makes: 'state "running" in the record',
    undoneBy: 'as for the record',
    nextProcess: 'drives the VM on: from here it is adopted',
  },
  'create.answer': {
    makes: 'answer to control',
    undoneBy: 'DELETE by control, if it gave the create up',
    nextProcess: 'answers when control asks again',
  },
  'end.note': {
    makes: 'end with its reason in the record',
    undoneBy: NOTHING,
    nextProcess: 'ends the VM by it',
  },
  'end.kill': { makes: 'QEMU gone', undoneBy: NOTHING, nextProcess: 'ends the VM by its note' },
  'end.report': { makes: 'end in the spool', undoneBy: NOTHING, nextProcess: 'reports it by its note' },
  'end.release': {
    makes: 'TAP, uid, sockets free; directory of the VM last',
    undoneBy: NOTHING,
    nextProcess: 'releases what the record names',
  },
  'end.answer': { makes: 'answer to control', undoneBy: NOTHING, nextProcess: 'answers from the spool' },
  'adopt.slot': {
    makes: 'lease of the slot again',
    undoneBy: 'release of the slot',
    nextProcess: 'adopts anew',
  },
  'adopt.connect': {
    makes: "connection to QEMU's monitor",
    undoneBy: 'its close',
    nextProcess: 'adopts anew',
  },
  'adopt.strays': {
    makes: 'processes of our uids that nobody drives gone',
    undoneBy: NOTHING,
    nextProcess: 'kills them',
  },
} as const satisfies Record<string, Step>;
export type StepName = keyof typeof STEPS;

/** Everything before this step is done, nothing of it is. */
export function enterStep(name: StepName): Promise<void> | undefined {
  return holdAt(name);
}
