import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { requireClient } from '../../service/require-client.ts';
import { Button } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { Dialog } from '../../ui/Dialog.tsx';
import { SelectField } from '../../ui/Field.tsx';
import { formatBytes } from '../../ui/format.ts';
import { Progress } from '../../ui/Progress.tsx';
import { canSaveStreams, saveStream } from '../../ui/save-stream.ts';
import { showDone } from '../../ui/toasts.tsx';
import { useAction } from '../../ui/use-action.ts';
import { exportDiskCall, imageFileName } from './disk-calls.ts';
import { FORMATS } from './ImportDisk.tsx';

interface ExportProps {
  disk: string;
  snapshot?: string;
  onClose: () => void;
}

/** Writes a disk to a file of the reader while it arrives. Browsers that cannot do that get the command. */
export function ExportDisk({ disk, snapshot, onClose }: ExportProps) {
  const format = useSignal<'raw' | 'qcow2'>('qcow2');
  const action = useAction();
  const received = useSignal(0);
  const end = useRef(new AbortController());
  useEffect(() => () => end.current.abort(), []);
  const save = async (): Promise<void> => {
    const { signal } = end.current;
    const options = { format: format.value, snapshot, signal };
    try {
      await saveStream(
        imageFileName(disk, format.value),
        () => requireClient().exportDisk(disk, options),
        (count) => (received.value = count),
      );
      showDone(`The image of ${disk} is saved.`);
      onClose();
    } catch (error) {
      // The reader chose no file.
      if (!(error instanceof DOMException && error.name === 'AbortError')) throw error;
    }
  };
  return (
    <Dialog title={`Export ${snapshot === undefined ? disk : `${disk}, ${snapshot}`}`} onClose={onClose}>
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
      {!canSaveStreams() && (
        <p class="hint">
          This browser cannot write large files piece by piece. Use the command under Code, or Chrome or Edge.
        </p>
      )}
      {action.isBusy && (
        <div class="stack" role="status">
          <Progress label="Export" />
          <span class="soft">{formatBytes(received.value)} received. Keep this page open.</span>
        </div>
      )}
      {action.error !== undefined && (
        <p class="fault" role="alert">
          {action.error}
        </p>
      )}
      <div class="dialog-foot">
        <CopyAsCode {...exportDiskCall(disk, { format: format.value, snapshot })} />
        <span class="gap" />
        <Button onClick={onClose}>Cancel</Button>
        <Button
          kind="primary"
          icon="download"
          isBusy={action.isBusy}
          isDisabled={!canSaveStreams()}
          onClick={() => void action.run(save)}
        >
          Save
        </Button>
      </div>
    </Dialog>
  );
}
