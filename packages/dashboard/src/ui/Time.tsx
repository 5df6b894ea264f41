import { useNow } from '../service/resource.ts';
import { formatAge, formatMoment } from './format.ts';

/** A time as an age, which grows; the exact time is its tooltip. */
export function Ago({ at }: { at: string }) {
  const now = useNow();
  return (
    <time dateTime={at} title={formatMoment(at)}>
      {formatAge(at, now.value)}
    </time>
  );
}
