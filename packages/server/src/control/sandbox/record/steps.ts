/**
 * Steps at which a sandbox's record and its VM may differ. Each text names the state that is left if control is killed
 * there, and how the difference is resolved afterwards. A test can hold each step and kill a process there
 * (e2e/faults/faults.test.ts).
 */
import { holdAt } from '../../../lib/fault-directory.ts';

export const RECORD_STEPS = {
  'record.insert': 'nothing exists yet; a claimed Idempotency-Key is free again for the same body',
  'record.ask': 'a record "creating" without a create; the next control sets it to failed',
  'record.start': 'the same with a VM, which is removed',
  'record.answer': 'a sandbox that runs; a retry with the same Idempotency-Key gets the answer',
  'record.remove': 'a record "running" whose VM still runs; the request has had no effect',
  'record.end':
    'a record "running" whose VM has ended; the runner sends the end from its spool, or on request',
  'record.acknowledge': 'an ended record; the runner reports the end once more, which changes nothing',
  'record.fork':
    'records "creating" of children without a fork; they are set to failed, the parent keeps running',
  'record.forked': 'the same with VMs, which are removed',
  'record.hibernate':
    'a record "running" that names a hibernation that was never made; the sandbox keeps running',
  'record.hibernated':
    'the same, but the hibernation exists in place of the VM; the record becomes "hibernated"',
  'record.resume': 'a record "hibernated" whose capture exists; the request has had no effect',
  'record.resumed': 'the same with a VM; the record becomes "running" and the capture is removed',
  'record.forget': 'a record "running" and the capture that it came from; the capture is removed',
  'record.snapshot': 'a snapshot "creating" that was never made; its record is removed',
  'record.saved': 'the same with a capture; both are removed',
  'record.erase': 'a snapshot "deleting" whose capture exists; both are removed',
  'record.erased': 'a snapshot "deleting" without a capture; its record is removed',
  'record.egress':
    'a policy, or secrets, in force that no record has; control sends the recorded ones to the runner',
  'record.rollback': 'a record that names a rollback that was never begun; the next control requests it',
  'record.rolled_back':
    'the same, but it was done; the next control repeats the request, gets that answer, and commits it',
} as const;
export type RecordStep = keyof typeof RECORD_STEPS;

/** Enters a step: everything before it is done, and nothing of the step itself. */
export function enterRecordStep(name: RecordStep): Promise<void> | undefined {
  return holdAt(name);
}
