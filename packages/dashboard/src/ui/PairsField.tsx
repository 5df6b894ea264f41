import { useId } from 'preact/hooks';
import { Button, IconButton } from './Button.tsx';

export interface Pair {
  name: string;
  value: string;
}

interface PairsFieldProps {
  label: string;
  hint?: string;
  pairs: readonly Pair[];
  onPairs: (pairs: readonly Pair[]) => void;
  /** Label of the button that adds one. */
  addLabel: string;
  namePlaceholder?: string;
  valuePlaceholder?: string;
}

/** Rows of a name and a value, such as labels and environment variables. */
export function PairsField(props: PairsFieldProps) {
  const { label, hint, pairs, onPairs, addLabel } = props;
  const id = useId();
  const replace = (index: number, change: Partial<Pair>): void =>
    onPairs(pairs.map((pair, position) => (position === index ? { ...pair, ...change } : pair)));
  return (
    <fieldset class="pairs" aria-describedby={hint === undefined ? undefined : `${id}-hint`}>
      <legend>{label}</legend>
      {hint !== undefined && (
        <div id={`${id}-hint`} class="hint">
          {hint}
        </div>
      )}
      {pairs.map(({ name, value }, index) => (
        <div key={index} class="pair">
          <input
            type="text"
            aria-label={`${label}: name ${index + 1}`}
            placeholder={props.namePlaceholder ?? 'name'}
            value={name}
            spellcheck={false}
            autocomplete="off"
            onInput={(event) => replace(index, { name: event.currentTarget.value })}
          />
          <input
            type="text"
            aria-label={`${label}: value ${index + 1}`}
            placeholder={props.valuePlaceholder ?? 'value'}
            value={value}
            spellcheck={false}
            autocomplete="off"
            onInput={(event) => replace(index, { value: event.currentTarget.value })}
          />
          <IconButton
            icon="trash"
            label={`Remove ${name === '' ? `row ${index + 1}` : name}`}
            onClick={() => onPairs(pairs.filter((_, position) => position !== index))}
          />
        </div>
      ))}
      <div>
        <Button icon="plus" kind="quiet" onClick={() => onPairs([...pairs, { name: '', value: '' }])}>
          {addLabel}
        </Button>
      </div>
    </fieldset>
  );
}
