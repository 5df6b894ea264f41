/**
 * The steps between which control may be killed with a sandbox's record and its VM in disagreement, and what closes the
 * difference afterwards. Each can be held by a test, which then kills somebody there (e2e/faults.test.ts).
 */
import { holdAt } from '../../lib/fault-directory.ts';

export const RECORD_STEPS = {
  'record.insert':
    'nothing is there yet; an Idempotency-Key that was claimed is free again for the same body',
  'record.ask': 'a record "creating" that nobody works on: failed by the next control',
  'record.start': 'the same, with a VM: removed',
  'record.answer': 'a sandbox that runs; with its Idempotency-Key asked again, the answer',
  'record.remove': 'a record "running" whose VM still runs: as if nobody had asked',
  'record.end': 'a record "running" whose VM has ended: the end is in the spool, or is asked for',
  'record.acknowledge': 'an ended record whose end is told once more, and changes nothing',
} as const;
export type RecordStep = keyof typeof RECORD_STEPS;

/** Everything before this step is done, nothing of it is. */
export function enterRecordStep(name: RecordStep): Promise<void> | undefined {
  return holdAt(name);
}
