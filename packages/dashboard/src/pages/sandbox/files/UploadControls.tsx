import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { Sandbox } from '../../../../../sdk/src/index.ts';
import { Button } from '../../../ui/Button.tsx';
import { CopyAsCode } from '../../../ui/CopyAsCode.tsx';
import { Dialog } from '../../../ui/Dialog.tsx';
import { formatNumber } from '../../../ui/format.ts';
import { GuestText } from '../../../ui/GuestText.tsx';
import { Icon } from '../../../ui/Icon.tsx';
import { Menu } from '../../../ui/Menu.tsx';
import { toLiteral, toPython } from '../../../ui/snippets.ts';
import { showFailure } from '../../../ui/toasts.tsx';
import { codeOf } from '../sandbox-code.ts';
import { readChosen, readDropped, type ChosenFile } from './dropped-files.ts';
import { findConflicts } from './find-conflicts.ts';
import { joinPath } from './paths.ts';
import { startUpload } from './uploads.ts';

interface Question {
  files: readonly ChosenFile[];
  conflicts: readonly ChosenFile[];
}

interface Uploader {
  /** Uploads what `read` returns, and asks first if names are taken. */
  upload: (read: () => Promise<readonly ChosenFile[]> | readonly ChosenFile[]) => void;
  /** The question, while it is open. */
  dialog: ComponentChildren;
}

export function useUploader(sandbox: Sandbox, directory: string | undefined): Uploader {
  const question = useSignal<(Question & { directory: string }) | undefined>(undefined);
  const prepare: Uploader['upload'] = (read) => {
    const begin = async (target: string): Promise<void> => {
      // A drop must be read within its event, so this comes first.
      const files = await read();
      const conflicts = await findConflicts(sandbox, target, files);
      if (conflicts.length > 0) question.value = { files, conflicts, directory: target };
      else if (files.length > 0) startUpload(sandbox, target, files);
    };
    if (directory !== undefined) begin(directory).catch(showFailure);
  };
  const asked = question.value;
  const answer = (files: readonly ChosenFile[]): void => {
    question.value = undefined;
    if (asked !== undefined && files.length > 0) startUpload(sandbox, asked.directory, files);
  };
  const dialog = asked && (
    <ConflictDialog question={asked} onAnswer={answer} onClose={() => (question.value = undefined)} />
  );
  return { upload: prepare, dialog };
}

const MAX_NAMES_SHOWN = 8;

function ConflictDialog({
  question: { files, conflicts },
  onAnswer,
  onClose,
}: {
  question: Question;
  onAnswer: (files: readonly ChosenFile[]) => void;
  onClose: () => void;
}) {
  const taken = new Set(conflicts);
  const rest = files.filter((file) => !taken.has(file));
  const left = conflicts.length - MAX_NAMES_SHOWN;
  return (
    <Dialog
      title={conflicts.length === 1 ? 'This file exists' : `${formatNumber(conflicts.length)} files exist`}
      onClose={onClose}
    >
      <ul>
        {conflicts.slice(0, MAX_NAMES_SHOWN).map(({ path }) => (
          <li key={path}>
            <GuestText text={path} />
          </li>
        ))}
        {left > 0 && <li>{formatNumber(left)} more</li>}
      </ul>
      <p>Replaced files cannot be restored, except by a snapshot that was taken before.</p>
      <div class="dialog-foot">
        <Button onClick={onClose}>Cancel</Button>
        {rest.length > 0 && (
          <Button onClick={() => onAnswer(rest)}>{`Upload the other ${formatNumber(rest.length)}`}</Button>
        )}
        <Button kind="danger" onClick={() => onAnswer(files)}>
          Replace
        </Button>
      </div>
    </Dialog>
  );
}

/** A button that uploads chosen files or a chosen folder. */
export function UploadButton({ upload }: { upload: Uploader['upload'] }) {
  const files = useRef<HTMLInputElement>(null);
  const folder = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (folder.current !== null) folder.current.webkitdirectory = true;
  }, []);
  const take = (event: Event): void => {
    const input = event.currentTarget as HTMLInputElement;
    const chosen = readable(input);
    // The same files can be chosen again.
    input.value = '';
    upload(() => readChosen(chosen));
  };
  return (
    <span class="upload-menu">
      <Menu
        label="Upload"
        button={
          <>
            <Icon name="upload" size={16} /> Upload <Icon name="chevron" size={14} />
          </>
        }
        items={[
          { label: 'Files', icon: 'file', onSelect: () => files.current?.click() },
          { label: 'A folder', icon: 'folder', onSelect: () => folder.current?.click() },
        ]}
      />
      <input ref={files} type="file" multiple hidden aria-label="Files to upload" onChange={take} />
      <input ref={folder} type="file" hidden aria-label="Folder to upload" onChange={take} />
    </span>
  );
}

function readable(input: HTMLInputElement): readonly File[] {
  return Array.from(input.files ?? []);
}

/** A place on which files can be dropped. */
export function DropZone({ upload, children }: { upload: Uploader['upload']; children: ComponentChildren }) {
  const depth = useSignal(0);
  useEffect(refuseOtherDrops, []);
  const enter = (step: 1 | -1) => (event: DragEvent) => {
    if (hasFiles(event)) depth.value = Math.max(0, depth.value + step);
  };
  return (
    <div
      class={`drop-zone stack${depth.value > 0 ? ' over' : ''}`}
      onDragEnter={enter(1)}
      onDragLeave={enter(-1)}
      onDragOver={(event) => {
        if (hasFiles(event)) event.preventDefault();
      }}
      onDrop={(event) => {
        depth.value = 0;
        const { dataTransfer } = event;
        if (dataTransfer === null || !hasFiles(event)) return;
        event.preventDefault();
        upload(() => readDropped(dataTransfer));
      }}
    >
      {children}
    </div>
  );
}

/** A file that is dropped beside the zone would replace the page. */
function refuseOtherDrops(): () => void {
  const refuse = (event: DragEvent): void => {
    if (event.defaultPrevented || !hasFiles(event)) return;
    event.preventDefault();
    if (event.dataTransfer !== null) event.dataTransfer.dropEffect = 'none';
  };
  addEventListener('dragover', refuse);
  addEventListener('drop', refuse);
  return () => {
    removeEventListener('dragover', refuse);
    removeEventListener('drop', refuse);
  };
}

function hasFiles({ dataTransfer }: DragEvent): boolean {
  return dataTransfer?.types.includes('Files') === true;
}

/** The same as a call of the API. */
export function UploadCode({ sandboxId, directory }: { sandboxId: string; directory: string }) {
  const path = joinPath(directory, 'notes.txt');
  return (
    <CopyAsCode
      {...codeOf({
        id: sandboxId,
        method: 'POST',
        path: `/files/upload?path=${encodeURIComponent(path.toWellFormed())}`,
        typescript: `await sandbox?.upload(${toLiteral(path)}, 'content');\nconsole.log(await sandbox?.listFiles(${toLiteral(directory)}));`,
        python: `sandbox.upload(${toPython(path)}, "content")\nprint(sandbox.list_files(${toPython(directory)}).all())`,
      })}
    />
  );
}
