/** A calendar month in UTC. Pure. */
export interface Month {
  /** For example 2026-11. */
  name: string;
  /** Unix milliseconds. */
  from: number;
  /** Unix milliseconds, exclusive. */
  to: number;
}

const NAME_LENGTH = 'YYYY-MM'.length;

/** Parses `name`, which must be a year and a month, 01 to 12. */
export function toMonth(name: string): Month {
  const [year = 0, month = 0] = name.split('-').map(Number);
  return { name, from: Date.UTC(year, month - 1), to: Date.UTC(year, month) };
}

/** Returns the month of a time in Unix milliseconds. */
export function monthAt(wallMs: number): Month {
  return toMonth(new Date(wallMs).toISOString().slice(0, NAME_LENGTH));
}
