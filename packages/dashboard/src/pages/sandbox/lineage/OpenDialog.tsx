import type { Coppice } from '../../../../../sdk/src/index.ts';
import { DeleteSnapshot, EditSnapshot, RestoreSnapshot } from '../../snapshots/SnapshotDialogs.tsx';
import { CompareDialog } from './CompareDialog.tsx';
import { findReturning, findReturns, type Family, type FamilyNode } from './family.ts';
import { DestroySandbox, ForkSandbox, RollBack, TakeSnapshot } from './NodeDialogs.tsx';
import type { NodeAction } from './NodePanel.tsx';
import type { LiveRecords } from './node-text.ts';
import { PruneDialog } from './PruneDialog.tsx';

/** A dialog for a member of a family. It stays open while the family changes. */
export type Opened =
  | { action: Exclude<NodeAction, 'compare'>; node: FamilyNode }
  | { action: 'compare'; node: FamilyNode; other: FamilyNode };

interface OpenDialogProps {
  client: Coppice;
  family: Family;
  live: LiveRecords;
  opened: Opened;
  onClose: () => void;
}

export function OpenDialog({ opened, family, ...props }: OpenDialogProps) {
  const { action, node } = opened;
  if (action === 'compare') return <CompareDialog {...props} left={node} right={opened.other} />;
  if (action === 'below' || action === 'beside')
    return <PruneDialog {...props} family={family} node={node} scope={action} />;
  if (node.kind === 'snapshot') {
    const { client, onClose } = props;
    const shared = { client, onClose, snapshot: node.record };
    if (action === 'restore') return <RestoreSnapshot {...shared} />;
    if (action === 'edit') return <EditSnapshot {...shared} />;
    if (action === 'delete') return <DeleteSnapshot {...shared} />;
    return <RollBack {...props} sandboxes={findReturning(family, node)} snapshots={[node]} />;
  }
  if (action === 'fork') return <ForkSandbox {...props} node={node} />;
  if (action === 'snapshot') return <TakeSnapshot {...props} node={node} />;
  if (action === 'rollback')
    return <RollBack {...props} sandboxes={[node]} snapshots={findReturns(family, node)} />;
  return <DestroySandbox {...props} node={node} />;
}
