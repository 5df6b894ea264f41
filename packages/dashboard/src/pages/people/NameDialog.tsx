import { useSignal } from '@preact/signals';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { TextField } from '../../ui/Field.tsx';

/** Asks for the name of something, at first or anew. */
export function NameDialog({
  title,
  verb,
  label,
  hint,
  name: before = '',
  act,
  onClose,
}: {
  title: string;
  verb: string;
  label: string;
  hint?: string;
  name?: string;
  act: (name: string) => Promise<void>;
  onClose: () => void;
}) {
  const name = useSignal(before);
  return (
    <ActionDialog
      title={title}
      verb={verb}
      isDisabled={name.value.trim() === '' || name.value.trim() === before}
      act={() => act(name.value.trim())}
      onClose={onClose}
    >
      <TextField
        label={label}
        hint={hint}
        value={name.value}
        onValue={(value) => (name.value = value)}
        attributes={{ required: true, autofocus: true }}
      />
    </ActionDialog>
  );
}
