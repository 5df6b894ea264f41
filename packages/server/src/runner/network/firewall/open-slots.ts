/** Reads which slots are open in the table of a former runner process. */
import { OPEN_SET } from './ruleset.ts';
import type { HostControl } from '../kernel/host-control.ts';
import { findTapIndex, type InstanceNames } from '../addresses/slot-names.ts';

/** The set in tables of earlier releases, which had no rules for guests: all its slots are open. */
const FORMER_SET = 'guests';

/**
 * Without a table the state is unknown: then all slots are closed until their VMs are adopted, so that a slot with
 * rules is never open for a moment.
 */
export async function readOpenSlots(
  names: InstanceNames,
  hostControl: HostControl,
): Promise<(index: number) => boolean> {
  const elements =
    (await hostControl.readSet(names.table, OPEN_SET)) ??
    (await hostControl.readSet(names.table, FORMER_SET)) ??
    [];
  const open = new Set(
    elements.map(({ key }) => findTapIndex(names, key.toString('latin1').split('\0', 1)[0] ?? '')),
  );
  return (index) => open.has(index);
}
