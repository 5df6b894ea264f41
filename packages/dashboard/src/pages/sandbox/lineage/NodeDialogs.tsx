/** Dialogs for one member of a family. */
import { useSignal } from '@preact/signals';
import { ForkError, type Coppice, type Sandbox } from '../../../../../sdk/src/index.ts';
import { ActionDialog } from '../../../ui/ActionDialog.tsx';
import { SelectField, TextField } from '../../../ui/Field.tsx';
import { formatMoment, formatNumber } from '../../../ui/format.ts';
import { toPython, toLiteral, toPythonArguments } from '../../../ui/snippets.ts';
import { titleOf } from '../../snapshots/SnapshotDialogs.tsx';
import type { SandboxNode, SnapshotNode } from './family.ts';
import { nameOf, type LiveRecords } from './node-text.ts';

interface DialogProps {
  client: Coppice;
  live: LiveRecords;
  onClose: () => void;
}

const MAX_CHILDREN = 100;

export async function getSandbox(client: Coppice, id: string): Promise<Sandbox> {
  const sandbox = await client.sandboxes.get(id);
  if (sandbox === null) throw new Error(`The sandbox ${id} no longer exists.`);
  return sandbox;
}

const getTypeScript = (id: string): string => `const sandbox = await client.sandboxes.get('${id}');`;
const getPython = (id: string): string => `sandbox = client.sandboxes.get(${toPython(id)})`;

export function ForkSandbox({ client, live, node, onClose }: DialogProps & { node: SandboxNode }) {
  const text = useSignal('1');
  const count = Number(text.value);
  const isValid = Number.isInteger(count) && count >= 1 && count <= MAX_CHILDREN;
  const { id } = node;
  return (
    <ActionDialog
      title={`Fork ${nameOf(node, live)}`}
      verb={isValid && count > 1 ? `Fork into ${formatNumber(count)}` : 'Fork'}
      isDisabled={!isValid}
      done={count > 1 ? `${formatNumber(count)} forks are running.` : 'The fork is running.'}
      act={async () => forkInto(await getSandbox(client, id), count)}
      onClose={onClose}
      code={{
        method: 'POST',
        path: `/v1/runs/${id}/fork`,
        body: { count },
        typescript: `${getTypeScript(id)}\nconst children = await sandbox.fork(${count});`,
        python: `${getPython(id)}\nchildren = sandbox.fork(${count})`,
      }}
    >
      <p class="soft">
        Each fork is a sandbox of its own that continues from this moment, with the same memory, processes and
        files. This sandbox keeps running.
      </p>
      <TextField
        label="Number of forks"
        hint={`From 1 to ${MAX_CHILDREN}. Each one costs as much as this sandbox.`}
        error={isValid ? undefined : `The number must be a whole number from 1 to ${MAX_CHILDREN}.`}
        value={text.value}
        onValue={(value) => (text.value = value)}
        attributes={{ type: 'number', min: 1, max: MAX_CHILDREN, inputMode: 'numeric' }}
      />
    </ActionDialog>
  );
}

async function forkInto(sandbox: Sandbox, count: number): Promise<void> {
  try {
    await sandbox.fork(count);
  } catch (error) {
    if (!(error instanceof ForkError)) throw error;
    const { children, errors } = error;
    throw new Error(
      `${errors.length} of ${children.length + errors.length} forks could not be created, the others run: ${error.detail ?? error.code}`,
      { cause: error },
    );
  }
}

export function TakeSnapshot({ client, live, node, onClose }: DialogProps & { node: SandboxNode }) {
  const name = useSignal('');
  const keep = useSignal('');
  const options = {
    ...(name.value === '' ? {} : { name: name.value }),
    ...(keep.value === '' ? {} : { expiresIn: Number(keep.value) }),
  };
  const isPlain = Object.keys(options).length === 0;
  const { id } = node;
  return (
    <ActionDialog
      title={`Take a snapshot of ${nameOf(node, live)}`}
      verb="Take snapshot"
      done="The snapshot has been taken."
      act={async () => (await getSandbox(client, id)).snapshot(options)}
      onClose={onClose}
      code={{
        method: 'POST',
        path: `/v1/runs/${id}/snapshot`,
        body: { name: options.name, expires_in: options.expiresIn },
        typescript: `${getTypeScript(id)}\nconst snapshot = await sandbox.snapshot(${isPlain ? '' : toLiteral(options)});`,
        python: `${getPython(id)}\nsnapshot = sandbox.snapshot(${toPythonArguments(options)})`,
      }}
    >
      <p class="soft">It keeps memory, processes and files of this moment. The sandbox keeps running.</p>
      <TextField
        label="Name"
        isOptional
        value={name.value}
        onValue={(value) => (name.value = value)}
        attributes={{ maxLength: 128 }}
      />
      <SelectField
        label="Keep it"
        options={[
          ['', 'Until it is deleted'],
          ['86400', 'For a day'],
          ['604800', 'For a week'],
          ['2592000', 'For 30 days'],
        ]}
        value={keep.value}
        onValue={(value) => (keep.value = value)}
      />
    </ActionDialog>
  );
}

interface RollBackProps extends DialogProps {
  sandboxes: readonly SandboxNode[];
  snapshots: readonly SnapshotNode[];
}

/** Returns a sandbox to a snapshot. One of both lists has the member that was selected, the other the choices. */
export function RollBack({ client, live, sandboxes, snapshots, onClose }: RollBackProps) {
  const sandboxId = useSignal(sandboxes[0]?.id ?? '');
  const snapshotId = useSignal(snapshots[0]?.id ?? '');
  const [id, snapshot] = [sandboxId.value, snapshotId.value];
  return (
    <ActionDialog
      title="Roll back"
      verb="Roll back"
      kind="danger"
      isDisabled={id === '' || snapshot === ''}
      done="The sandbox has been rolled back."
      act={async () => (await getSandbox(client, id)).rollback(snapshot)}
      onClose={onClose}
      code={{
        method: 'POST',
        path: `/v1/runs/${id}/rollback`,
        body: { snapshot_id: snapshot },
        typescript: `${getTypeScript(id)}\nawait sandbox.rollback('${snapshot}');`,
        python: `${getPython(id)}\nsandbox.rollback(${toPython(snapshot)})`,
      }}
    >
      <p>
        The sandbox keeps its id and becomes what the snapshot is. All that has changed in it since then is
        lost, and open connections end.
      </p>
      <SelectField
        label="Sandbox"
        options={sandboxes.map((node) => [node.id, optionOf(nameOf(node, live), node.id)])}
        value={id}
        onValue={(value) => (sandboxId.value = value)}
      />
      <SelectField
        label="To the snapshot"
        options={snapshots.map(({ record }) => [
          record.id,
          `${optionOf(titleOf(record), record.id)}, ${formatMoment(record.createdAt)}`,
        ])}
        value={snapshot}
        onValue={(value) => (snapshotId.value = value)}
      />
    </ActionDialog>
  );
}

function optionOf(name: string, id: string): string {
  return name === id ? id : `${name} (${id})`;
}

export function DestroySandbox({ client, live, node, onClose }: DialogProps & { node: SandboxNode }) {
  const { id, children } = node;
  return (
    <ActionDialog
      title={`Destroy ${nameOf(node, live)}`}
      verb="Destroy"
      kind="danger"
      done="The sandbox has been destroyed."
      act={async () => (await getSandbox(client, id)).destroy()}
      onClose={onClose}
      code={{
        method: 'DELETE',
        path: `/v1/runs/${id}`,
        typescript: `${getTypeScript(id)}\nawait sandbox.destroy();`,
        python: `${getPython(id)}\nsandbox.destroy()`,
      }}
    >
      <p>
        The sandbox <span class="mono">{id}</span> ends, and everything in it is lost.
        {children.length > 0 && ' Its snapshots and forks are not affected.'}
      </p>
    </ActionDialog>
  );
}
