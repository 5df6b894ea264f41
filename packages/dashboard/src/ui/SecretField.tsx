import { useSignal } from '@preact/signals';
import '../styles/resources.css';
import { TextField } from './Field.tsx';

const SHOWN = { type: 'text', autocomplete: 'off' } as const;
const HIDDEN = { type: 'password', autocomplete: 'new-password' } as const;

/** A field for a secret: hidden while it is typed, unless the reader wants to see it. */
export function SecretField({
  label,
  hint,
  value,
  onValue,
}: {
  label: string;
  hint?: string;
  value: string;
  onValue: (value: string) => void;
}) {
  const isShown = useSignal(false);
  return (
    <div class="secret-field">
      <TextField
        label={label}
        hint={hint}
        value={value}
        onValue={onValue}
        attributes={isShown.value ? SHOWN : HIDDEN}
      />
      <button
        class="secret-toggle"
        type="button"
        aria-pressed={isShown.value}
        onClick={() => (isShown.value = !isShown.value)}
      >
        {isShown.value ? 'Hide' : 'Show'}
        <span class="for-readers"> {label}</span>
      </button>
    </div>
  );
}
