/**
 * Steps at which the record of a disk and the disk at the runner may differ. Each text names the state that is left if
 * control is killed there, and what the next control does. The simulation kills control at each of them.
 */
import { holdAt } from '../../lib/fault-directory.ts';

export const DISK_STEPS = {
  'disk.make': 'a record "creating" of a disk that was never made; the record is removed',
  'disk.made': 'the same with the disk; both are removed',
  'disk.erase': 'a record "deleting" of a disk that exists; both are removed',
  'disk.erased': 'a record "deleting" without a disk; the record is removed',
  'disk.snapshot': 'a snapshot "creating" that was never taken; its record is removed',
  'disk.saved': 'the same with a version that it keeps; both are removed',
  'disk.grow': 'a record that names a size to which the disk has not grown; the next control grows it',
  'disk.grown': 'the same, but the disk has grown; the record gets the size',
  'disk.mount': 'a sandbox "creating" whose new disk was never made; both records are undone',
  'disk.mounted': 'the same with the disk, which is removed',
  'disk.reattach': 'a disk "attaching" of a hibernated sandbox that was not resumed; it becomes free',
  'disk.free': 'a disk "detaching" that the runner no longer holds; it becomes free',
} as const;
export type DiskStep = keyof typeof DISK_STEPS;

/** Enters a step: everything before it is done, and nothing of the step itself. */
export function enterDiskStep(name: DiskStep): Promise<void> | undefined {
  return holdAt(name);
}
