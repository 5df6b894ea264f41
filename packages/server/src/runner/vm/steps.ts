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
  'restore.plan': {
    makes: 'nothing; the capture is read, and held',
    undoneBy: 'its release',
    nextProcess: NOTHING,
  },
  'capture.prepare': {
    makes: 'directory of the capture with its memory file, and an overlay',
    undoneBy: 'removal of both',
    nextProcess: 'removes partial captures, and overlays that are not part of the disk',
  },
  'capture.freeze': {
    makes: "the guest's processes frozen",
    undoneBy: 'they are thawed',
    nextProcess: 'thaws them, as the record says "capturing"',
  },
  'capture.stop': {
    makes: 'a guest that stands still',
    undoneBy: 'it goes on',
    nextProcess: 'lets it go on, as the record says "capturing"',
  },
  'capture.devices': { makes: 'file in the capture', undoneBy: 'its removal', nextProcess: 'as for prepare' },
  'capture.memory': { makes: 'file in the capture', undoneBy: 'its removal', nextProcess: 'as for prepare' },
  'capture.disk': {
    makes: 'overlay on top, the one under it frozen',
    undoneBy: 'kept: the disk reads the same',
    nextProcess: 'asks QEMU which overlays there are',
  },
  'capture.thaw': { makes: 'processes that run again', undoneBy: NOTHING, nextProcess: 'thaws them' },
  'capture.finish': {
    makes: 'synced files with their sums',
    undoneBy: 'their removal',
    nextProcess: 'as for prepare',
  },
  'capture.publish': {
    makes: 'capture with its name: it exists',
    undoneBy: 'removal by control, which asked for it',
    nextProcess: 'lists it',
  },
  'overlay.remove': {
    makes: 'one overlay less, of those that were joined or prepared; QEMU has closed it',
    undoneBy: NOTHING,
    nextProcess: 'removes overlays that are not part of the disk',
  },
  'hibernate.retire': {
    makes: 'a VM that is gone; its hibernation stays',
    undoneBy: NOTHING,
    nextProcess: 'ends the VM, as its record names a hibernation that is complete',
  },
  'fork.children': {
    makes: 'VMs that go on from the capture, each as a create',
    undoneBy: 'as for creates',
    nextProcess: 'as for creates',
  },
  'rollback.replace': {
    makes: 'a VM of the same sandbox that goes on from the capture; the old one stands still',
    undoneBy: 'end of the new one, the old one goes on',
    nextProcess: 'as for undoing, unless the new one was running: then the old one is ended',
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
