import { useSignal } from '@preact/signals';
import { requireClient } from '../../service/require-client.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { FileField, SelectField, TextField } from '../../ui/Field.tsx';
import { formatBytes } from '../../ui/format.ts';
import { importDiskCall } from './disk-calls.ts';

type Format = 'raw' | 'qcow2';

export const FORMATS: readonly (readonly [Format, string])[] = [
  ['raw', 'Raw image (.img)'],
  ['qcow2', 'QEMU image (.qcow2)'],
];

/** Makes a disk from a file of the reader. The browser reads it while it is sent. */
export function ImportDisk({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const name = useSignal('');
  const file = useSignal<File | undefined>(undefined);
  const format = useSignal<Format>('raw');
  const choose = (chosen: File | undefined): void => {
    file.value = chosen;
    if (chosen === undefined) return;
    format.value = chosen.name.endsWith('.qcow2') ? 'qcow2' : 'raw';
    if (name.value === '') name.value = toDiskName(chosen.name);
  };
  const send = async (): Promise<void> => {
    if (file.value === undefined) return;
    await requireClient().importDisk(name.value, file.value, { format: format.value });
    onDone();
  };
  return (
    <ActionDialog
      title="Import a disk image"
      verb="Import"
      done={`Disk ${name.value} is ready.`}
      isDisabled={name.value === '' || file.value === undefined}
      act={send}
      onClose={onClose}
      code={importDiskCall(name.value || 'data', { format: format.value })}
    >
      <FileField
        label="Image"
        hint={
          file.value === undefined
            ? 'It must contain an ext4 file system without partitions.'
            : `${formatBytes(file.value.size)}. Keep this page open until the import is done.`
        }
        onFile={choose}
      />
      <SelectField
        label="Format"
        value={format.value}
        options={FORMATS}
        onValue={(value) => (format.value = value === 'qcow2' ? 'qcow2' : 'raw')}
      />
      <TextField
        label="Name of the disk"
        hint="The size is that of the image, rounded up to whole GB."
        value={name.value}
        onValue={(value) => (name.value = value)}
        attributes={{ maxLength: 30 }}
      />
    </ActionDialog>
  );
}

function toDiskName(fileName: string): string {
  return fileName
    .toLowerCase()
    .replace(/\.[a-z0-9]+$/u, '')
    .replaceAll(/[^a-z0-9-]+/gu, '-')
    .replaceAll(/^-+|-+$/gu, '')
    .slice(0, 30);
}
