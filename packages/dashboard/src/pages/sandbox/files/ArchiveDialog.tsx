import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { FileEntry, Sandbox } from '../../../../../sdk/src/index.ts';
import { Button } from '../../../ui/Button.tsx';
import { CopyAsCode } from '../../../ui/CopyAsCode.tsx';
import { Dialog } from '../../../ui/Dialog.tsx';
import { formatBytes } from '../../../ui/format.ts';
import { GuestText } from '../../../ui/GuestText.tsx';
import { Progress } from '../../../ui/Progress.tsx';
import { canSaveStreams, saveStream } from '../../../ui/save-stream.ts';
import { toLiteral, toPython } from '../../../ui/snippets.ts';
import { showDone } from '../../../ui/toasts.tsx';
import { useAction } from '../../../ui/use-action.ts';
import { codeOf } from '../sandbox-code.ts';
import { archiveNameOf } from './paths.ts';

interface ArchiveDialogProps {
  sandbox: Sandbox;
  entry: FileEntry;
  onClose: () => void;
}

/** Writes a directory as a tar to a file of the reader while it arrives. */
export function ArchiveDialog({ sandbox, entry: { name, path }, onClose }: ArchiveDialogProps) {
  const action = useAction();
  const received = useSignal(0);
  const end = useRef(new AbortController());
  useEffect(() => () => end.current.abort(), []);
  const save = async (): Promise<void> => {
    const { signal } = end.current;
    try {
      await saveStream(
        archiveNameOf(name),
        () => sandbox.files.downloadArchive(path, { format: 'tar.gz', signal }),
        (count) => (received.value = count),
      );
      showDone('The archive is saved.');
      onClose();
    } catch (error) {
      // The reader chose no file, or closed the dialog.
      if (!(error instanceof DOMException && error.name === 'AbortError')) throw error;
    }
  };
  return (
    <Dialog title="Download folder" onClose={onClose}>
      <p>
        <b>
          <GuestText text={name} />
        </b>{' '}
        with everything in it is saved as a compressed archive.
      </p>
      {!canSaveStreams() && (
        <p class="hint">
          This browser cannot write large files piece by piece. Use the command under Code, or Chrome or Edge.
        </p>
      )}
      {action.isBusy && (
        <div class="stack" role="status">
          <Progress label="Download" />
          <span class="soft">{formatBytes(received.value)} received. Keep this page open.</span>
        </div>
      )}
      {action.error !== undefined && (
        <p class="fault" role="alert">
          {action.error}
        </p>
      )}
      <div class="dialog-foot">
        <CopyAsCode {...archiveCall(sandbox.record.id, path)} />
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

function archiveCall(id: string, path: string) {
  return codeOf({
    id,
    method: 'GET',
    path: `/files/archive?path=${encodeURIComponent(path.toWellFormed())}&format=tar.gz`,
    typescript: [
      `const stream = await sandbox?.files.downloadArchive(${toLiteral(path)}, { format: 'tar.gz' });`,
      `await stream?.pipeTo(Writable.toWeb(createWriteStream('folder.tar.gz')));`,
    ].join('\n'),
    python: [
      `with sandbox.files.download_archive(${toPython(path)}, format="tar.gz") as stream, open("folder.tar.gz", "wb") as file:`,
      '    for chunk in stream:',
      '        file.write(chunk)',
    ].join('\n'),
  });
}
