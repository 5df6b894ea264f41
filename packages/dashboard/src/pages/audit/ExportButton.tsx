import { Button } from '../../ui/Button.tsx';
import { useAction } from '../../ui/use-action.ts';
import { showFailure } from '../../ui/toasts.tsx';

/** Saves a log as a file, as the service wrote it: with all entries, so that it can be verified. */
export function ExportButton({ name, read }: { name: string; read: () => Promise<string> }) {
  const action = useAction();
  const save = async (): Promise<void> => {
    try {
      saveFile(name, await read());
    } catch (error) {
      showFailure(error);
    }
  };
  return (
    <Button icon="download" isBusy={action.isBusy} onClick={() => void action.run(save)}>
      Export
    </Button>
  );
}

function saveFile(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: 'application/x-ndjson' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
