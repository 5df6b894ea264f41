import { useSignal } from '@preact/signals';
import { requireClient } from '../../service/require-client.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { TextField } from '../../ui/Field.tsx';
import { createDiskCall } from './disk-calls.ts';

const DEFAULT_GB = '10';
const NAME_HINT = 'At most 30 lower-case letters, digits and hyphens.';

interface CreateDiskProps {
  onClose: () => void;
  onDone: () => void;
}

export function CreateDisk({ onClose, onDone }: CreateDiskProps) {
  const name = useSignal('');
  const size = useSignal(DEFAULT_GB);
  const sizeGb = Number(size.value);
  const create = async (): Promise<void> => {
    await requireClient().createDisk({ name: name.value, sizeGb });
    onDone();
  };
  return (
    <ActionDialog
      title="New disk"
      verb="Create disk"
      done={`Disk ${name.value} is ready.`}
      isDisabled={name.value === '' || size.value === ''}
      act={create}
      onClose={onClose}
      code={createDiskCall(name.value || 'data', sizeGb)}
    >
      <TextField
        label="Name"
        hint={NAME_HINT}
        value={name.value}
        onValue={(value) => (name.value = value)}
        attributes={{ autofocus: true, maxLength: 30 }}
      />
      <SizeField value={size.value} onValue={(value) => (size.value = value)} />
    </ActionDialog>
  );
}

export function SizeField({
  value,
  min = 1,
  onValue,
}: {
  value: string;
  min?: number;
  onValue: (value: string) => void;
}) {
  return (
    <TextField
      label="Size in GB"
      hint="Space is used only for what is written. A disk can grow later, and never shrinks."
      value={value}
      onValue={onValue}
      attributes={{ type: 'number', min, step: 1, inputMode: 'numeric' }}
    />
  );
}
