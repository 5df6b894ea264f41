/** Splits a time at the borders of months in UTC. Pure. */
import { monthAt } from './month.ts';

export interface MonthPart {
  /** For example 2026-11. */
  month: string;
  ms: number;
}

/** `from` and `to` are Unix milliseconds. Returns nothing unless `from` is before `to`. */
export function splitByMonth(from: number, to: number): MonthPart[] {
  const parts: MonthPart[] = [];
  for (let begin = from; begin < to;) {
    const month = monthAt(begin);
    const end = Math.min(to, month.to);
    parts.push({ month: month.name, ms: end - begin });
    begin = end;
  }
  return parts;
}
