import { useSignal } from '@preact/signals';
import { requireClient } from '../../service/require-client.ts';
import { SelectField } from '../../ui/Field.tsx';
import { SaveStreamDialog } from '../../ui/SaveStreamDialog.tsx';
import { exportDiskCall, imageFileName } from './disk-calls.ts';
import { FORMATS } from './ImportDisk.tsx';

interface ExportProps {
  disk: string;
  snapshot?: string;
  onClose: () => void;
}

export function ExportDisk({ disk, snapshot, onClose }: ExportProps) {
  const format = useSignal<'raw' | 'qcow2'>('qcow2');
  return (
    <SaveStreamDialog
      title={`Export ${snapshot === undefined ? disk : `${disk}, ${snapshot}`}`}
      fileName={imageFileName(disk, format.value)}
      open={(signal) => requireClient().exportDisk(disk, { format: format.value, snapshot, signal })}
      progressLabel="Export"
      done={`The image of ${disk} is saved.`}
      code={exportDiskCall(disk, { format: format.value, snapshot })}
      onClose={onClose}
    >
      <p>
        {snapshot === undefined
          ? 'The image has the newest version in the object store. Flush the disk before to have everything in it.'
          : 'The image has the disk as it was at the snapshot.'}
      </p>
      <SelectField
        label="Format"
        value={format.value}
        options={FORMATS}
        onValue={(value) => (format.value = value === 'raw' ? 'raw' : 'qcow2')}
      />
    </SaveStreamDialog>
  );
}
