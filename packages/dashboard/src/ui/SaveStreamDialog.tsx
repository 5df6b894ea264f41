import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { Button } from './Button.tsx';
import { CopyAsCode } from './CopyAsCode.tsx';
import { Dialog } from './Dialog.tsx';
import { formatBytes } from './format.ts';
import { Progress } from './Progress.tsx';
import { canSaveStreams, saveStream } from './save-stream.ts';
import { showDone } from './toasts.tsx';
import { useAction } from './use-action.ts';

interface SaveStreamDialogProps {
  title: string;
  /** Explains what is saved, or contains its fields. */
  children: ComponentChildren;
  fileName: string;
  open: (signal: AbortSignal) => Promise<ReadableStream<Uint8Array<ArrayBuffer>>>;
  /** Of the bar. */
  progressLabel: string;
  /** Shown when it is done. */
  done: string;
  code: Parameters<typeof CopyAsCode>[0];
  onClose: () => void;
}

/** Writes a stream to a file of the reader while it arrives. Browsers that cannot do that get the command. */
export function SaveStreamDialog(props: SaveStreamDialogProps) {
  const { title, children, fileName, open, progressLabel, done, code, onClose } = props;
  const action = useAction();
  const received = useSignal(0);
  const end = useRef(new AbortController());
  useEffect(() => () => end.current.abort(), []);
  const save = async (): Promise<void> => {
    const { signal } = end.current;
    try {
      await saveStream(
        fileName,
        () => open(signal),
        (count) => (received.value = count),
      );
      showDone(done);
      onClose();
    } catch (error) {
      // The reader chose no file, or closed the dialog.
      if (!(error instanceof DOMException && error.name === 'AbortError')) throw error;
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      {children}
      {!canSaveStreams() && (
        <p class="hint">
          This browser cannot write large files piece by piece. Use the command under Code, or Chrome or Edge.
        </p>
      )}
      {action.isBusy && (
        <div class="stack" role="status">
          <Progress label={progressLabel} />
          <span class="soft">{formatBytes(received.value)} received. Keep this page open.</span>
        </div>
      )}
      {action.error !== undefined && (
        <p class="fault" role="alert">
          {action.error}
        </p>
      )}
      <div class="dialog-foot">
        <CopyAsCode {...code} />
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
