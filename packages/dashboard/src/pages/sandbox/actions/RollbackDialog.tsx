import { useSignal } from '@preact/signals';
import type { SnapshotInfo } from '../../../../../sdk/src/index.ts';
import { useResource } from '../../../service/resource.ts';
import { client } from '../../../service/session.ts';
import { ActionDialog } from '../../../ui/ActionDialog.tsx';
import { formatBytes, formatMoment } from '../../../ui/format.ts';
import { toLiteral, toPython } from '../../../ui/snippets.ts';
import { Loaded } from '../../../ui/states.tsx';
import { codeOf } from '../sandbox-code.ts';
import type { ActionProps } from './action-props.ts';
import { listOwnSnapshots } from './own-snapshots.ts';

export function RollbackDialog({ sandbox, record, perform, onClose }: ActionProps) {
  const current = client.value;
  const chosen = useSignal('');
  const snapshots = useResource(
    async (signal) => (current === undefined ? [] : listOwnSnapshots(current, sandbox, signal)),
    [current, record.id],
    { concerns: ({ type }) => type.startsWith('snapshot.') },
  );
  const id = chosen.value;
  return (
    <ActionDialog
      title="Roll back the sandbox"
      verb="Roll back"
      kind="danger"
      size="large"
      done="The sandbox was rolled back."
      isDisabled={id === ''}
      act={async () => perform(async () => sandbox.rollback(id))}
      onClose={onClose}
      code={codeOf({
        id: record.id,
        method: 'POST',
        path: '/rollback',
        body: { snapshot_id: id },
        typescript: `await sandbox.rollback(${toLiteral(id)});`,
        python: `sandbox.rollback(${toPython(id)})`,
      })}
    >
      <p class="soft">
        The sandbox keeps its id and returns to the chosen snapshot. Everything since then is lost: files,
        processes, open connections.
      </p>
      <Loaded resource={snapshots} rows={3}>
        {(list) => (
          <Choices
            snapshots={list}
            chosen={id}
            ownId={record.id}
            onChoose={(snapshotId) => (chosen.value = snapshotId)}
          />
        )}
      </Loaded>
    </ActionDialog>
  );
}

interface ChoicesProps {
  snapshots: readonly SnapshotInfo[];
  chosen: string;
  ownId: string;
  onChoose: (id: string) => void;
}

function Choices({ snapshots, chosen, ownId, onChoose }: ChoicesProps) {
  if (snapshots.length === 0)
    return (
      <p class="soft">
        There is no snapshot of this sandbox or of one that it was forked from, with the same size. Take one
        first.
      </p>
    );
  return (
    <fieldset class="choices">
      <legend>Snapshot</legend>
      {snapshots.map(({ id, name, runId, createdAt, sizeBytes }) => (
        <label key={id} class="choice">
          <input type="radio" name="snapshot" checked={chosen === id} onChange={() => onChoose(id)} />
          <span>
            <b>{name ?? id}</b>
            <span class="soft">
              {formatMoment(createdAt)} · {formatBytes(sizeBytes)}
              {runId !== ownId && ` · of ${runId}`}
            </span>
          </span>
        </label>
      ))}
    </fieldset>
  );
}
