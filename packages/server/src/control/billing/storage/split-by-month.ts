/** Splits a time at the borders of months in UTC. Pure. */
export interface MonthPart {
  /** For example 2026-11. */
  month: string;
  ms: number;
}

const MONTH_LENGTH = 'YYYY-MM'.length;

/** `from` and `to` are Unix milliseconds. Returns nothing unless `from` is before `to`. */
export function splitByMonth(from: number, to: number): MonthPart[] {
  const parts: MonthPart[] = [];
  for (let begin = from; begin < to;) {
    const date = new Date(begin);
    const end = Math.min(to, Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1));
    parts.push({ month: date.toISOString().slice(0, MONTH_LENGTH), ms: end - begin });
    begin = end;
  }
  return parts;
}
