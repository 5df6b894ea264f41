/** Reads which slots are open in the table of a former runner process. */
import { OPEN_SET } from './ruleset.ts';
import { SetReader } from '../kernel/set-reader.ts';
import { findTapIndex, type InstanceNames } from '../addresses/slot-names.ts';

/** The set in tables of earlier releases, which had no rules for guests: all its slots are open. */
const FORMER_SET = 'guests';

/**
 * Without a table the state is unknown: then all slots are closed until their VMs are adopted, so that a slot with
 * rules is never open for a moment.
 */
export async function readOpenSlots(names: InstanceNames): Promise<(index: number) => boolean> {
  using reader = new SetReader(names.table);
  const elements = (await reader.readSet(OPEN_SET)) ?? (await reader.readSet(FORMER_SET)) ?? [];
  const open = new Set(
    elements.map(({ key }) => findTapIndex(names, key.toString('latin1').split('\0', 1)[0] ?? '')),
  );
  return (index) => open.has(index);
}
