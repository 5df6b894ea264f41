import { useSignal } from '@preact/signals';
import type { Coppice } from '../../../../../sdk/src/index.ts';
import { ActionDialog } from '../../../ui/ActionDialog.tsx';
import { SelectField } from '../../../ui/Field.tsx';
import { formatMoment } from '../../../ui/format.ts';
import { toLiteral, toPython } from '../../../ui/snippets.ts';
import { codeOf } from '../sandbox-code.ts';
import type { SandboxNode, SnapshotNode } from './family.ts';
import { getSandbox } from './get-sandbox.ts';
import { nameOf, type LiveRecords } from './node-text.ts';

interface RollBackToProps {
  client: Coppice;
  live: LiveRecords;
  snapshot: SnapshotNode;
  /** Those that can return to it. */
  sandboxes: readonly SandboxNode[];
  onClose: () => void;
}

/** Returns one of the sandboxes of a family to a snapshot. */
export function RollBackTo({ client, live, snapshot, sandboxes, onClose }: RollBackToProps) {
  const chosen = useSignal(sandboxes[0]?.id ?? '');
  const id = chosen.value;
  return (
    <ActionDialog
      title={`Roll back to ${nameOf(snapshot, live)}`}
      verb="Roll back"
      kind="danger"
      isDisabled={id === ''}
      done="The sandbox was rolled back."
      act={async () => (await getSandbox(client, id)).rollback(snapshot.id)}
      onClose={onClose}
      code={codeOf({
        id,
        method: 'POST',
        path: '/rollback',
        body: { snapshot_id: snapshot.id },
        typescript: `await sandbox.rollback(${toLiteral(snapshot.id)});`,
        python: `sandbox.rollback(${toPython(snapshot.id)})`,
      })}
    >
      <p>
        The sandbox keeps its id and returns to the snapshot of {formatMoment(snapshot.createdAt)}. Everything
        since then is lost: files, processes, open connections.
      </p>
      <SelectField
        label="Sandbox"
        options={sandboxes.map((node) => [node.id, optionOf(nameOf(node, live), node.id)])}
        value={id}
        onValue={(value) => (chosen.value = value)}
      />
    </ActionDialog>
  );
}

function optionOf(name: string, id: string): string {
  return name === id ? id : `${name} (${id})`;
}
