/** Months of statements, which are in UTC, for example `2026-11`. */

/** Returns the months from one time to another, both inclusive, in order. */
export function monthsBetween(from: string, to: string): string[] {
  const months: string[] = [];
  for (let month = monthOf(from); month <= monthOf(to); month = nextMonth(month)) months.push(month);
  return months;
}

export function monthOf(timestamp: string | number): string {
  return new Date(timestamp).toISOString().slice(0, 7);
}

export function nextMonth(month: string): string {
  return shift(month, 1);
}

export function previousMonth(month: string): string {
  return shift(month, -1);
}

function shift(month: string, by: number): string {
  const time = new Date(`${month}-01T00:00:00.000Z`);
  time.setUTCMonth(time.getUTCMonth() + by);
  return time.toISOString().slice(0, 7);
}

/** Returns so many months up to and with one, the latest first. */
export function monthsBack(month: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => shift(month, -index));
}
