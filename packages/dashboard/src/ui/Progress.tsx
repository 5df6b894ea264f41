import '../styles/resources.css';

/** How far something is. Without a total, that it proceeds. */
export function Progress({
  label,
  done,
  total,
}: {
  label: string;
  done?: number | null;
  total?: number | null;
}) {
  const isKnown = typeof done === 'number' && typeof total === 'number' && total > 0;
  return (
    <progress
      class="progress"
      aria-label={label}
      {...(isKnown ? { value: Math.min(done, total), max: total } : {})}
    />
  );
}
