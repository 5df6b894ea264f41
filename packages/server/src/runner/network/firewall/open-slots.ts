/** Which slots the table that a former runner process left has open. */
import { OPEN_SET } from './ruleset.ts';
import { SetReader } from '../kernel/set-reader.ts';
import { findTapIndex, type InstanceNames } from '../addresses/slot-names.ts';

/** A table from before there were rules for guests has none that is closed. */
const FORMER_SET = 'guests';

/**
 * Without a table nobody knows: then all are closed until their VMs are adopted, rather than that one with rules is open
 * for a moment.
 */
export async function readOpenSlots(names: InstanceNames): Promise<(index: number) => boolean> {
  using reader = new SetReader(names.table);
  const elements = (await reader.readSet(OPEN_SET)) ?? (await reader.readSet(FORMER_SET)) ?? [];
  const open = new Set(
    elements.map(({ key }) => findTapIndex(names, key.toString('latin1').split('\0', 1)[0] ?? '')),
  );
  return (index) => open.has(index);
}
