import type { FileEntry, Sandbox } from '../../../../../sdk/src/index.ts';
import { GuestText } from '../../../ui/GuestText.tsx';
import { SaveStreamDialog } from '../../../ui/SaveStreamDialog.tsx';
import { toLiteral, toPython } from '../../../ui/snippets.ts';
import { codeOf } from '../sandbox-code.ts';
import { archiveNameOf } from './paths.ts';

interface ArchiveDialogProps {
  sandbox: Sandbox;
  entry: FileEntry;
  onClose: () => void;
}

/** Saves a directory as a tar. */
export function ArchiveDialog({ sandbox, entry: { name, path }, onClose }: ArchiveDialogProps) {
  return (
    <SaveStreamDialog
      title="Download folder"
      fileName={archiveNameOf(name)}
      open={(signal) => sandbox.files.downloadArchive(path, { format: 'tar.gz', signal })}
      progressLabel="Download"
      done="The archive is saved."
      code={archiveCall(sandbox.record.id, path)}
      onClose={onClose}
    >
      <p>
        <b>
          <GuestText text={name} />
        </b>{' '}
        with everything in it is saved as a compressed archive.
      </p>
    </SaveStreamDialog>
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
