interface SegmentsProps<Value extends string | number | boolean> {
  /** Of the whole choice. */
  label: string;
  /** Values with their labels. */
  options: readonly (readonly [value: Value, label: string])[];
  value: Value;
  onValue: (value: Value) => void;
  isDisabled?: boolean;
}

/** A choice between a few values that are all seen. */
export function Segments<Value extends string | number | boolean>(props: SegmentsProps<Value>) {
  const { label, options, value, onValue, isDisabled = false } = props;
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map(([option, text]) => (
        <button
          key={String(option)}
          type="button"
          aria-pressed={option === value}
          disabled={isDisabled}
          onClick={() => onValue(option)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}

/** Options whose values are their labels. */
export function toOptions<Value extends string>(values: readonly Value[]): (readonly [Value, Value])[] {
  return values.map((value) => [value, value]);
}
