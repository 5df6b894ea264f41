interface SearchFieldProps {
  label: string;
  placeholder: string;
  value: string;
  onValue: (value: string) => void;
  isInvalid?: boolean;
}

/** Searches or filters a list, in the row above it. */
export function SearchField({ label, placeholder, value, onValue, isInvalid = false }: SearchFieldProps) {
  return (
    <input
      type="search"
      aria-label={label}
      aria-invalid={isInvalid}
      placeholder={placeholder}
      value={value}
      onInput={(event) => onValue(event.currentTarget.value)}
    />
  );
}
