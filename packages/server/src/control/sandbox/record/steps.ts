/**
 * The steps between which control may be killed with a sandbox's record and its VM in disagreement, and what closes the
 * difference afterwards. Each can be held by a test, which then kills somebody there (e2e/faults.test.ts).
 */
import { holdAt } from '../../../lib/fault-directory.ts';

export const RECORD_STEPS = {
  'record.insert':
    'nothing is there yet; an Idempotency-Key that was claimed is free again for the same body',
  'record.ask': 'a record "creating" that nobody works on: failed by the next control',
  'record.start': 'the same, with a VM: removed',
  'record.answer': 'a sandbox that runs; with its Idempotency-Key asked again, the answer',
  'record.remove': 'a record "running" whose VM still runs: as if nobody had asked',
  'record.end': 'a record "running" whose VM has ended: the end is in the spool, or is asked for',
  'record.acknowledge': 'an ended record whose end is told once more, and changes nothing',
  'record.fork': 'records of children "creating" that nobody works on: failed, the parent runs on',
  'record.forked': 'the same, with VMs: removed',
  'record.hibernate': 'a record "running" that names a hibernation which was never made: runs on',
  'record.hibernated': 'the same, and the hibernation is there in place of the VM: hibernated',
  'record.resume': 'a record "hibernated" whose capture is there: as if nobody had asked',
  'record.resumed': 'the same, with a VM: runs, and the capture is removed',
  'record.forget': 'a record "running" beside the capture that it came from: that is removed',
  'record.snapshot': 'a snapshot "creating" that was never made: its record is removed',
  'record.saved': 'the same, with a capture: both are removed',
  'record.erase': 'a snapshot "deleting" whose capture is there: both are removed',
  'record.erased': 'a snapshot "deleting" without a capture: its record is removed',
  'record.egress':
    'a policy, or secrets, in force that no record has: what is recorded is told to the runner',
  'record.rollback': 'a record that names a rollback which was never begun: the next control has it done',
  'record.rolled_back':
    'the same, and it was done: the next control asks again, is told so, and writes it down',
} as const;
export type RecordStep = keyof typeof RECORD_STEPS;

/** Everything before this step is done, nothing of it is. */
export function enterRecordStep(name: RecordStep): Promise<void> | undefined {
  return holdAt(name);
}
