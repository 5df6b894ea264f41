import { useSignal } from '@preact/signals';
import { ActionDialog } from '../../../ui/ActionDialog.tsx';
import { SelectField, TextField } from '../../../ui/Field.tsx';
import { toLiteral, toPythonArguments } from '../../../ui/snippets.ts';
import { codeOf } from '../sandbox-code.ts';
import type { ActionProps } from './action-props.ts';
import { parseSeconds } from './duration-text.ts';

const OTHER = 'other';
const EXPIRIES: readonly (readonly [string, string])[] = [
  ['', 'Never'],
  ['1d', 'After 1 day'],
  ['7d', 'After 7 days'],
  ['30d', 'After 30 days'],
  ['365d', 'After 1 year'],
  [OTHER, 'After another time'],
];

export function SnapshotDialog({ sandbox, record, perform, onClose }: ActionProps) {
  const name = useSignal('');
  const expiry = useSignal('');
  const other = useSignal('');
  const text = expiry.value === OTHER ? other.value : expiry.value;
  const expiresIn = expiry.value === '' ? undefined : parseSeconds(text);
  const isExpiry = expiry.value === '' || (expiresIn !== undefined && expiresIn > 0);
  const options = {
    ...(name.value === '' ? {} : { name: name.value }),
    ...(expiresIn === undefined ? {} : { expiresIn }),
  };
  return (
    <ActionDialog
      title="Take a snapshot"
      verb="Take snapshot"
      done="The snapshot was taken."
      isDisabled={!isExpiry}
      act={async () => perform(async () => sandbox.snapshot(options))}
      onClose={onClose}
      code={codeOf({
        id: record.id,
        method: 'POST',
        path: '/snapshot',
        body: { name: options.name, expires_in: options.expiresIn },
        typescript: `const snapshot = await sandbox.snapshot(${toLiteral(options)});`,
        python: `snapshot = sandbox.snapshot(${toPythonArguments(options)})`,
      })}
    >
      <p class="soft">
        A snapshot keeps the memory, the processes and the files. The sandbox pauses for a moment and
        continues. Later you can create sandboxes from the snapshot, or roll this one back to it.
      </p>
      <TextField
        label="Name"
        isOptional
        value={name.value}
        onValue={(value) => (name.value = value)}
        attributes={{ autofocus: true }}
      />
      <SelectField
        label="Deleted"
        value={expiry.value}
        options={EXPIRIES}
        onValue={(value) => (expiry.value = value)}
      />
      {expiry.value === OTHER && (
        <TextField
          label="Deleted after"
          hint="For example 12h or 90d."
          value={other.value}
          onValue={(value) => (other.value = value)}
          error={other.value === '' || isExpiry ? undefined : 'Write a time such as 12h or 90d.'}
        />
      )}
    </ActionDialog>
  );
}
