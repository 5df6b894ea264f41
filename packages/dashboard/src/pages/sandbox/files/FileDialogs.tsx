import { useSignal } from '@preact/signals';
import type { FileEntry, Sandbox } from '../../../../../sdk/src/index.ts';
import { ActionDialog } from '../../../ui/ActionDialog.tsx';
import { Checkbox, TextField } from '../../../ui/Field.tsx';
import { GuestText } from '../../../ui/GuestText.tsx';
import { toLiteral, toPython } from '../../../ui/snippets.ts';
import { showHidden } from '../../../ui/visible-text.ts';
import { codeOf } from '../sandbox-code.ts';
import { describeMode, MODE_PATTERN } from './file-mode.ts';
import { findNameFault, joinPath, parentOf } from './paths.ts';

interface EntryDialogProps {
  sandbox: Sandbox;
  entry: FileEntry;
  /** Called after the change. */
  onDone: () => void;
  onClose: () => void;
}

export function NewFolderDialog({
  sandbox,
  directory,
  onDone,
  onClose,
}: Omit<EntryDialogProps, 'entry'> & { directory: string }) {
  const name = useSignal('');
  const fault = findNameFault(name.value);
  const path = joinPath(directory, name.value);
  return (
    <ActionDialog
      title="New folder"
      verb="Create"
      isDisabled={name.value === '' || fault !== undefined}
      act={async () => {
        await sandbox.files.mkdir(path, { parents: false });
        onDone();
      }}
      onClose={onClose}
      code={codeOf({
        id: sandbox.record.id,
        method: 'POST',
        path: '/files/mkdir',
        body: { path, parents: false },
        typescript: `await sandbox?.files.mkdir(${toLiteral(path)}, { parents: false });`,
        python: `sandbox.files.mkdir(${toPython(path)}, parents=False)`,
      })}
    >
      <TextField
        label="Name"
        value={name.value}
        onValue={(value) => (name.value = value)}
        error={fault}
        hint={<GuestText text={`In ${directory}`} />}
        attributes={{ autofocus: true }}
      />
    </ActionDialog>
  );
}

export function MoveDialog({ sandbox, entry, onDone, onClose }: EntryDialogProps) {
  // A field cannot hold each character that a path may have, so a part that was not edited stays as it is.
  const name = useSignal<string | undefined>(undefined);
  const folder = useSignal<string | undefined>(undefined);
  const isOverwriting = useSignal(false);
  const from = entry.path;
  const to = joinPath(folder.value ?? parentOf(from), name.value ?? entry.name);
  const nameFault = name.value === '' ? 'Enter a name.' : findNameFault(name.value ?? '');
  const folderFault = folder.value?.startsWith('/') === false ? 'Begin with a slash.' : undefined;
  const options = isOverwriting.value ? { overwrite: true } : {};
  const [ts, py] = isOverwriting.value ? [', { overwrite: true }', ', overwrite=True'] : ['', ''];
  return (
    <ActionDialog
      title="Rename or move"
      verb="Move"
      isDisabled={to === from || nameFault !== undefined || folderFault !== undefined}
      act={async () => {
        await sandbox.files.move(from, to, options);
        onDone();
      }}
      onClose={onClose}
      code={codeOf({
        id: sandbox.record.id,
        method: 'POST',
        path: '/files/move',
        body: { from, to, ...options },
        typescript: `await sandbox?.files.move(${toLiteral(from)}, ${toLiteral(to)}${ts});`,
        python: `sandbox.files.move(${toPython(from)}, ${toPython(to)}${py})`,
      })}
    >
      <TextField
        label="Name"
        value={name.value ?? showHidden(entry.name)}
        onValue={(value) => (name.value = value)}
        error={nameFault}
        attributes={{ autofocus: true }}
      />
      <TextField
        label="Folder"
        value={folder.value ?? showHidden(parentOf(from))}
        onValue={(value) => (folder.value = value)}
        error={folderFault}
      />
      <Checkbox
        label="Replace what has this name"
        hint="A file, or an empty folder"
        isChecked={isOverwriting.value}
        onChange={(isChecked) => (isOverwriting.value = isChecked)}
      />
    </ActionDialog>
  );
}

export function ModeDialog({ sandbox, entry, onDone, onClose }: EntryDialogProps) {
  const mode = useSignal(entry.mode);
  const isRecursive = useSignal(false);
  const isValid = MODE_PATTERN.test(mode.value);
  const options = isRecursive.value ? { recursive: true } : {};
  const [ts, py] = isRecursive.value ? [', { recursive: true }', ', recursive=True'] : ['', ''];
  return (
    <ActionDialog
      title="Change mode"
      verb="Change"
      isDisabled={!isValid || (mode.value === entry.mode && !isRecursive.value)}
      act={async () => {
        await sandbox.files.chmod(entry.path, mode.value, options);
        onDone();
      }}
      onClose={onClose}
      code={codeOf({
        id: sandbox.record.id,
        method: 'POST',
        path: '/files/chmod',
        body: { path: entry.path, mode: mode.value, ...options },
        typescript: `await sandbox?.files.chmod(${toLiteral(entry.path)}, ${toLiteral(mode.value)}${ts});`,
        python: `sandbox.files.chmod(${toPython(entry.path)}, ${toPython(mode.value)}${py})`,
      })}
    >
      <p>
        <GuestText text={entry.name} />
      </p>
      <TextField
        label="Permissions"
        value={mode.value}
        onValue={(value) => (mode.value = value)}
        error={isValid ? undefined : 'Enter three or four octal digits, for example 755.'}
        hint={<code>{describeMode(mode.value, entry.type)}</code>}
        attributes={{ autofocus: true, inputMode: 'numeric' }}
      />
      {entry.type === 'dir' && (
        <Checkbox
          label="Also for everything in it"
          isChecked={isRecursive.value}
          onChange={(isChecked) => (isRecursive.value = isChecked)}
        />
      )}
    </ActionDialog>
  );
}

export function RemoveDialog({ sandbox, entry, onDone, onClose }: EntryDialogProps) {
  const { path, name, type } = entry;
  const isDirectory = type === 'dir';
  const flag = isDirectory ? '&recursive=true' : '';
  return (
    <ActionDialog
      title={isDirectory ? 'Delete folder' : 'Delete file'}
      verb="Delete"
      kind="danger"
      act={async () => {
        await sandbox.files.remove(path, isDirectory ? { recursive: true } : {});
        onDone();
      }}
      onClose={onClose}
      code={codeOf({
        id: sandbox.record.id,
        method: 'DELETE',
        path: `/files?path=${encodeURIComponent(path.toWellFormed())}${flag}`,
        typescript: `await sandbox?.files.remove(${toLiteral(path)}${isDirectory ? ', { recursive: true }' : ''});`,
        python: `sandbox.files.remove(${toPython(path)}${isDirectory ? ', recursive=True' : ''})`,
      })}
    >
      <p>
        <b>
          <GuestText text={name} />
        </b>
        {isDirectory ? ' and everything in it are deleted.' : ' is deleted.'} Only a snapshot that was taken
        before can bring it back.
      </p>
    </ActionDialog>
  );
}
