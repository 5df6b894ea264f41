import { useSignal } from '@preact/signals';
import type { Command } from '../../../../../sdk/src/index.ts';
import { Button } from '../../../ui/Button.tsx';
import { TextField } from '../../../ui/Field.tsx';
import { Card } from '../../../ui/Page.tsx';
import { useAction } from '../../../ui/use-action.ts';

/** Sends lines to standard input of a command that was started with it open. */
export function CommandInput({ command, isDisabled }: { command: Command; isDisabled: boolean }) {
  const line = useSignal('');
  const isEnded = useSignal(false);
  const sending = useAction();
  const send = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (await sending.run(async () => command.write(`${line.value}\n`))) line.value = '';
  };
  const end = async (): Promise<void> => {
    if (await sending.run(async () => command.write('', { end: true }))) isEnded.value = true;
  };
  if (isEnded.value)
    return (
      <Card title="Standard input">
        <p class="soft">The input has ended.</p>
      </Card>
    );
  return (
    <Card title="Standard input">
      <form class="input-form" onSubmit={(event) => void send(event)}>
        <TextField
          label="Line"
          hint="Only a command that was started with its input open reads it."
          value={line.value}
          onValue={(value) => (line.value = value)}
          attributes={{ class: 'mono', disabled: isDisabled }}
        />
        <Button type="submit" isBusy={sending.isBusy} isDisabled={isDisabled}>
          Send
        </Button>
        <Button kind="quiet" isDisabled={isDisabled || sending.isBusy} onClick={() => void end()}>
          End the input
        </Button>
      </form>
      {sending.error !== undefined && (
        <p class="fault" role="alert">
          {sending.error}
        </p>
      )}
    </Card>
  );
}
