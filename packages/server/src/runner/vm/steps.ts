/**
 * Every step at which the runner creates or removes something outside its own memory, in the order of a VM's life. Each
 * step registers its undo before it runs: in the driver's release list for this process, on disk for the next one. A
 * test can hold each step and kill a process there (e2e/faults/faults.test.ts).
 */
import { holdAt } from '../../lib/fault-directory.ts';

interface Step {
  makes: string;
  /** The undo by this process when the step, or a later one, fails. */
  undoneBy: string;
  /** The action of the next process when this one is killed. */
  nextProcess: string;
}

const NOTHING = 'nothing';

export const STEPS = {
  'create.plan': {
    makes: 'image and template',
    undoneBy: 'kept, as they are shared',
    nextProcess: 'removes unfinished ones',
  },
  'create.slot': {
    makes: 'lease of a TAP with its addresses and uid',
    undoneBy: 'release of the slot',
    nextProcess: 'removes TAPs that belong to no adopted VM',
  },
  'create.record': {
    makes: 'directory of the VM, with the record that names all that follows',
    undoneBy: 'removal of the directory',
    nextProcess: 'removes directories without a record, ends VMs whose record is not "running"',
  },
  'create.disk': {
    makes: 'scratch overlay, and directories of sockets and of the persistent disk',
    undoneBy: 'removal of the directories',
    nextProcess: 'as for the record',
  },
  'create.launch': {
    makes: 'VMM, with the state of the template',
    undoneBy: 'SIGKILL, waited for',
    nextProcess: 'kills processes of our uids that belong to no adopted VM',
  },
  'create.note': {
    makes: "the VMM's pid in the record",
    undoneBy: 'as for the record',
    nextProcess: NOTHING,
  },
  'create.continue': {
    makes: 'a guest that runs',
    undoneBy: 'as for the VMM',
    nextProcess: 'as for the VMM',
  },
  'create.agent': { makes: 'session with the agent', undoneBy: 'its close', nextProcess: NOTHING },
  'create.workspace': {
    makes: 'persistent disk in the guest; it was taken before, and its record written',
    undoneBy: 'the disk is drained and released with the VM',
    nextProcess: 'drains and releases what the record names',
  },
  'create.resume': {
    makes: 'identity in the guest',
    undoneBy: 'as for the VMM',
    nextProcess: 'as for the VMM',
  },
  'create.running': {
    makes: 'state "running" in the record',
    undoneBy: 'as for the record',
    nextProcess: 'adopts the VM, from here on',
  },
  'create.answer': {
    makes: 'answer to control',
    undoneBy: 'DELETE by control, if it gave up the create',
    nextProcess: 'answers when control repeats the request',
  },
  'restore.plan': {
    makes: 'nothing; the capture is read and held',
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
    makes: 'a stopped guest',
    undoneBy: 'it continues',
    nextProcess: 'continues it, as the record says "capturing"',
  },
  'capture.devices': { makes: 'file in the capture', undoneBy: 'its removal', nextProcess: 'as for prepare' },
  'capture.memory': { makes: 'file in the capture', undoneBy: 'its removal', nextProcess: 'as for prepare' },
  'capture.disk': {
    makes: 'overlay on top; the one below it is frozen',
    undoneBy: 'kept, as the disk reads the same',
    nextProcess: 'reads the overlays from the VMM',
  },
  'capture.thaw': { makes: 'processes that run again', undoneBy: NOTHING, nextProcess: 'thaws them' },
  'capture.finish': {
    makes: 'synced files with their digests',
    undoneBy: 'their removal',
    nextProcess: 'as for prepare',
  },
  'capture.publish': {
    makes: 'capture with its name, so it exists',
    undoneBy: 'removal by control, which requested it',
    nextProcess: 'lists it',
  },
  'disk.open': {
    makes: 'overlay of the persistent disk, opened by the VMM',
    undoneBy: 'its removal',
    nextProcess: 'removes overlays above the top of the disk',
  },
  'disk.seal': {
    makes: 'overlay on top of the persistent disk; the one below it is sealed',
    undoneBy: 'kept, as the disk reads the same',
    nextProcess: 'reads the overlays from the VMM',
  },
  'disk.drain': {
    makes: 'version of the persistent disk in the object store, with the lowest sealed overlay',
    undoneBy: 'kept, as the disk reads the same',
    nextProcess: 'drains the overlay again, which gives the same version',
  },
  'disk.rebase': {
    makes: 'the other overlays on the drained version; the drained overlay is removed last',
    undoneBy: 'repeated',
    nextProcess: 'as for the drain',
  },
  'overlay.remove': {
    makes: 'one flattened or prepared overlay less; the VMM has closed it',
    undoneBy: NOTHING,
    nextProcess: 'removes overlays that are not part of the disk',
  },
  'hibernate.retire': {
    makes: 'a VM that is gone; its hibernation stays',
    undoneBy: NOTHING,
    nextProcess: 'ends the VM, as its record names a hibernation that is complete',
  },
  'fork.children': {
    makes: 'VMs that continue from the capture, each as a create',
    undoneBy: 'as for creates',
    nextProcess: 'as for creates',
  },
  'rollback.replace': {
    makes: 'a VM of the same sandbox that continues from the capture; the old one is stopped',
    undoneBy: 'end of the new one; the old one continues',
    nextProcess: 'as for the undo; ends the old one if the new one was running',
  },
  'end.note': {
    makes: 'end with its reason in the record',
    undoneBy: NOTHING,
    nextProcess: 'ends the VM by it',
  },
  'end.kill': { makes: 'VMM gone', undoneBy: NOTHING, nextProcess: 'ends the VM by its note' },
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
    makes: 'connection to the VMM',
    undoneBy: 'its close',
    nextProcess: 'adopts anew',
  },
  'adopt.strays': {
    makes: 'no process of our uids without a driver',
    undoneBy: NOTHING,
    nextProcess: 'kills them',
  },
} as const satisfies Record<string, Step>;
export type StepName = keyof typeof STEPS;

/** Enters a step: everything before it is done, and nothing of the step itself. */
export function enterStep(name: StepName): Promise<void> | undefined {
  return holdAt(name);
}
