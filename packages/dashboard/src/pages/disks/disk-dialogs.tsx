/** Dialogs of the actions on one disk. */
import { useSignal } from '@preact/signals';
import type { DiskInfo, DiskSnapshotInfo } from '../../../../sdk/src/index.ts';
import { requireClient } from '../../service/require-client.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Checkbox, SelectField, TextField } from '../../ui/Field.tsx';
import { formatMoment } from '../../ui/format.ts';
import { Empty } from '../../ui/states.tsx';
import { Dialog } from '../../ui/Dialog.tsx';
import { SizeField } from './CreateDisk.tsx';
import {
  deleteDiskCall,
  deleteSnapshotCall,
  flushDiskCall,
  forkDiskCall,
  growDiskCall,
  snapshotDiskCall,
} from './disk-calls.ts';

interface DialogProps {
  disk: DiskInfo;
  onClose: () => void;
  onDone: () => void;
}

export function GrowDisk({ disk: { name, sizeGb }, onClose, onDone }: DialogProps) {
  const size = useSignal(String(sizeGb * 2));
  const wanted = Number(size.value);
  return (
    <ActionDialog
      title={`Grow ${name}`}
      verb="Grow"
      done={`${name} has ${wanted} GB.`}
      isDisabled={!(wanted > sizeGb)}
      act={async () => {
        await requireClient().growDisk(name, wanted);
        onDone();
      }}
      onClose={onClose}
      code={growDiskCall(name, wanted)}
    >
      <p>It has {sizeGb} GB now. A sandbox that uses it sees the new size at once.</p>
      <SizeField value={size.value} min={sizeGb + 1} onValue={(value) => (size.value = value)} />
    </ActionDialog>
  );
}

export function FlushDisk({ disk: { name }, onClose, onDone }: DialogProps) {
  return (
    <ActionDialog
      title={`Flush ${name}`}
      verb="Flush"
      done={`Everything on ${name} is stored.`}
      act={async () => {
        await requireClient().flushDisk(name);
        onDone();
      }}
      onClose={onClose}
      code={flushDiskCall(name)}
    >
      <p>Waits until everything that was written before is in the object store.</p>
    </ActionDialog>
  );
}

export function SnapshotDisk({ disk: { name: disk, attachedTo }, onClose, onDone }: DialogProps) {
  const name = useSignal('');
  const sync = useSignal(attachedTo !== null);
  const options = { name: name.value, sync: sync.value };
  return (
    <ActionDialog
      title={`Snapshot of ${disk}`}
      verb="Take snapshot"
      done={`Snapshot ${name.value} is taken.`}
      isDisabled={name.value === ''}
      act={async () => {
        await requireClient().snapshotDisk(disk, options);
        onDone();
      }}
      onClose={onClose}
      code={snapshotDiskCall(disk, { ...options, name: name.value || 'clean' })}
    >
      <TextField
        label="Name"
        hint="At most 30 lower-case letters, digits and hyphens."
        value={name.value}
        onValue={(value) => (name.value = value)}
        attributes={{ autofocus: true, maxLength: 30 }}
      />
      <Checkbox
        label="Write the file system out first"
        hint="Without it, a snapshot of a disk in use has what a power cut would leave."
        isChecked={sync.value}
        onChange={(isChecked) => (sync.value = isChecked)}
      />
    </ActionDialog>
  );
}

interface ForkProps {
  disk: DiskInfo;
  snapshots: readonly DiskSnapshotInfo[];
  /** Chosen at first. Default: the newest. */
  from?: string | undefined;
  onClose: () => void;
  onDone: (name: string) => void;
}

export function ForkDisk({ disk: { name: disk }, snapshots, from, onClose, onDone }: ForkProps) {
  const snapshot = useSignal(from ?? snapshots[0]?.name ?? '');
  const name = useSignal(`${disk.slice(0, 25)}-copy`);
  if (snapshots.length === 0)
    return (
      <Dialog title={`Fork ${disk}`} onClose={onClose}>
        <Empty icon="snapshot" title="Take a snapshot first">
          A fork is a new disk from a snapshot of this one.
        </Empty>
      </Dialog>
    );
  const options = { snapshot: snapshot.value, name: name.value };
  return (
    <ActionDialog
      title={`Fork ${disk}`}
      verb="Fork"
      done={`Disk ${name.value} is ready.`}
      isDisabled={name.value === ''}
      act={() => requireClient().forkDisk(disk, options)}
      onClose={() => onClose()}
      onDone={() => onDone(name.value)}
      code={forkDiskCall(disk, options)}
    >
      <p>The new disk is independent. No data is copied, so it costs only what you change on it.</p>
      <SelectField
        label="Snapshot"
        value={snapshot.value}
        options={snapshots.map((entry) => [entry.name, `${entry.name}, ${formatMoment(entry.createdAt)}`])}
        onValue={(value) => (snapshot.value = value)}
      />
      <TextField
        label="Name of the new disk"
        value={name.value}
        onValue={(value) => (name.value = value)}
        attributes={{ maxLength: 30 }}
      />
    </ActionDialog>
  );
}

export function DeleteDisk({
  disk: { name },
  snapshots,
  onClose,
  onDone,
}: DialogProps & { snapshots: number }) {
  const snapshotText = snapshots === 1 ? 'one snapshot' : `${snapshots} snapshots`;
  return (
    <ActionDialog
      title={`Delete ${name}`}
      verb="Delete disk"
      kind="danger"
      done={`Disk ${name} is deleted.`}
      act={() => requireClient().deleteDisk(name)}
      onClose={onClose}
      onDone={onDone}
      code={deleteDiskCall(name)}
    >
      <p>Its data{snapshots === 0 ? '' : ` and ${snapshotText}`} are deleted for good.</p>
    </ActionDialog>
  );
}

export function DeleteSnapshot({
  disk,
  snapshot,
  onClose,
  onDone,
}: {
  disk: string;
  snapshot: string;
  onClose: () => void;
  onDone: () => void;
}) {
  return (
    <ActionDialog
      title={`Delete snapshot ${snapshot}`}
      verb="Delete snapshot"
      kind="danger"
      done={`Snapshot ${snapshot} is deleted.`}
      act={async () => {
        await requireClient().deleteDiskSnapshot(disk, snapshot);
        onDone();
      }}
      onClose={onClose}
      code={deleteSnapshotCall(disk, snapshot)}
    >
      <p>Disks that were forked from it keep their data.</p>
    </ActionDialog>
  );
}
