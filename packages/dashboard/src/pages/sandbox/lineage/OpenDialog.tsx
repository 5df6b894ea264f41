import type { ComponentType } from 'preact';
import type { Coppice } from '../../../../../sdk/src/index.ts';
import { performShown } from '../actions/perform-shown.ts';
import { useResource } from '../../../service/resource.ts';
import { Dialog } from '../../../ui/Dialog.tsx';
import { Loaded } from '../../../ui/states.tsx';
import { DeleteSnapshot, EditSnapshot, RestoreSnapshot } from '../../snapshots/SnapshotDialogs.tsx';
import type { ActionProps } from '../actions/action-props.ts';
import { DestroyDialog } from '../actions/DestroyDialog.tsx';
import { ForkDialog } from '../actions/ForkDialog.tsx';
import { RollbackDialog } from '../actions/RollbackDialog.tsx';
import { HibernateDialog, ResumeDialog } from '../actions/SleepDialogs.tsx';
import { SnapshotDialog } from '../actions/SnapshotDialog.tsx';
import { CompareDialog } from './CompareDialog.tsx';
import {
  findReturning,
  type Family,
  type FamilyNode,
  type SandboxNode,
  type SnapshotNode,
} from './family.ts';
import { getSandbox } from './get-sandbox.ts';
import type { SandboxAction, SnapshotAction } from './NodePanel.tsx';
import { nameOf, type LiveRecords } from './node-text.ts';
import { PruneDialog } from './PruneDialog.tsx';
import { RollBackTo } from './RollBackTo.tsx';

/** A dialog for a member of a family. It stays open while the family changes. */
export type Opened =
  | { action: SandboxAction; node: SandboxNode }
  | { action: SnapshotAction; node: SnapshotNode }
  | { action: 'below' | 'beside'; node: FamilyNode }
  | { action: 'compare'; node: FamilyNode; other: FamilyNode };

interface OpenDialogProps {
  client: Coppice;
  family: Family;
  live: LiveRecords;
  /** Reads the family again. */
  reload: () => void;
  onClose: () => void;
}

const SANDBOX_DIALOGS: Record<SandboxAction, ComponentType<ActionProps>> = {
  fork: ForkDialog,
  snapshot: SnapshotDialog,
  rollback: RollbackDialog,
  hibernate: HibernateDialog,
  resume: ResumeDialog,
  destroy: DestroyDialog,
};

export function OpenDialog({ opened, ...props }: OpenDialogProps & { opened: Opened }) {
  const { client, family, live, reload, onClose } = props;
  switch (opened.action) {
    case 'compare':
      return <CompareDialog {...props} left={opened.node} right={opened.other} />;
    case 'below':
    case 'beside':
      return <PruneDialog {...props} node={opened.node} scope={opened.action} />;
    case 'restore':
      return <RestoreSnapshot client={client} snapshot={opened.node.record} onClose={onClose} />;
    case 'edit':
      return <EditSnapshot client={client} snapshot={opened.node.record} onDone={reload} onClose={onClose} />;
    case 'delete':
      return <DeleteSnapshot client={client} snapshot={opened.node.record} onClose={onClose} />;
    case 'return':
      return (
        <RollBackTo
          client={client}
          live={live}
          snapshot={opened.node}
          sandboxes={findReturning(family, opened.node)}
          onClose={onClose}
        />
      );
    default:
      return <SandboxDialog {...props} {...opened} />;
  }
}

/** A dialog of the page of a sandbox, for another sandbox of the family. */
function SandboxDialog({
  client,
  live,
  action,
  node,
  reload,
  onClose,
}: OpenDialogProps & { action: SandboxAction; node: SandboxNode }) {
  const resource = useResource((signal) => getSandbox(client, node.id, signal), [client, node.id]);
  const Shown = SANDBOX_DIALOGS[action];
  const sandbox = resource.value;
  if (sandbox !== undefined)
    return (
      <Shown
        sandbox={sandbox}
        record={sandbox.record}
        perform={async (work) => performShown(work, reload)}
        onClose={onClose}
      />
    );
  return (
    <Dialog title={nameOf(node, live)} onClose={onClose}>
      <Loaded resource={resource} rows={2}>
        {() => null}
      </Loaded>
    </Dialog>
  );
}
