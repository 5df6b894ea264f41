/** Form fields with their label, hint and error, joined for readers of any kind. */
import type { ComponentChildren, InputHTMLAttributes } from 'preact';
import { useId } from 'preact/hooks';

interface FieldProps {
  label: string;
  hint?: ComponentChildren;
  error?: string | undefined;
  isOptional?: boolean;
}

interface Ids {
  id: string;
  'aria-describedby': string | undefined;
  'aria-invalid': boolean;
}

function Field({
  label,
  hint,
  error,
  isOptional = false,
  children,
}: FieldProps & { children: (ids: Ids) => ComponentChildren }) {
  const id = useId();
  const noteId = `${id}-note`;
  const hasNote = error !== undefined || hint !== undefined;
  return (
    <div class="field">
      <label for={id}>
        {label}
        {isOptional && <span class="soft"> (optional)</span>}
      </label>
      {children({
        id,
        'aria-describedby': hasNote ? noteId : undefined,
        'aria-invalid': error !== undefined,
      })}
      {hasNote && (
        <div id={noteId} class={error === undefined ? 'hint' : 'fault'}>
          {error ?? hint}
        </div>
      )}
    </div>
  );
}

type InputProps = FieldProps & {
  value: string;
  onValue: (value: string) => void;
  attributes?: InputHTMLAttributes;
};

export function TextField({ value, onValue, attributes, ...field }: InputProps) {
  return (
    <Field {...field}>
      {(ids) => (
        <input
          {...ids}
          type="text"
          value={value}
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => onValue(event.currentTarget.value)}
          {...attributes}
        />
      )}
    </Field>
  );
}

type AreaProps = FieldProps & {
  value: string;
  rows?: number;
  onValue: (value: string) => void;
  placeholder?: string;
};

export function TextArea({ value, rows = 4, onValue, placeholder, ...field }: AreaProps) {
  return (
    <Field {...field}>
      {(ids) => (
        <textarea
          {...ids}
          rows={rows}
          value={value}
          placeholder={placeholder}
          spellcheck={false}
          onInput={(event) => onValue(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

type SelectProps = FieldProps & {
  value: string;
  /** Values with their labels. */
  options: readonly (readonly [value: string, label: string])[];
  onValue: (value: string) => void;
};

export function SelectField({ value, options, onValue, ...field }: SelectProps) {
  return (
    <Field {...field}>
      {(ids) => (
        <select {...ids} value={value} onChange={(event) => onValue(event.currentTarget.value)}>
          {options.map(([option, label]) => (
            <option key={option} value={option}>
              {label}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

export function Checkbox({
  label,
  hint,
  isChecked,
  onChange,
}: {
  label: string;
  hint?: ComponentChildren;
  isChecked: boolean;
  onChange: (isChecked: boolean) => void;
}) {
  const id = useId();
  return (
    <div class="field check">
      <input
        id={id}
        type="checkbox"
        checked={isChecked}
        aria-describedby={hint === undefined ? undefined : `${id}-note`}
        onChange={(event) => onChange(event.currentTarget.checked)}
      />
      <label for={id}>{label}</label>
      {hint !== undefined && (
        <div id={`${id}-note`} class="hint">
          {hint}
        </div>
      )}
    </div>
  );
}

/** Chooses one file. */
export function FileField({ onFile, ...field }: FieldProps & { onFile: (file: File | undefined) => void }) {
  return (
    <Field {...field}>
      {(ids) => (
        <input
          {...ids}
          type="file"
          onChange={(event) => onFile(event.currentTarget.files?.[0] ?? undefined)}
        />
      )}
    </Field>
  );
}
