import { useSignal } from '@preact/signals';
import { showFailure } from './toasts.tsx';
import { Button, IconButton } from './Button.tsx';

const SHOWN_MS = 1500;

/** Copies a text. Without `children` it is an icon. */
export function CopyButton({ text, label, children }: { text: string; label: string; children?: string }) {
  const isDone = useSignal(false);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      isDone.value = true;
      setTimeout(() => (isDone.value = false), SHOWN_MS);
    } catch (error) {
      console.debug(error);
      // Browsers have a clipboard only for pages over HTTPS or of this machine.
      showFailure(
        new Error('The browser does not allow copying here. Select the text and copy it yourself.'),
      );
    }
  };
  const icon = isDone.value ? 'check' : 'copy';
  if (children === undefined)
    return <IconButton icon={icon} label={isDone.value ? 'Copied' : label} onClick={() => void copy()} />;
  return (
    <Button icon={icon} onClick={() => void copy()}>
      {isDone.value ? 'Copied' : children}
    </Button>
  );
}
