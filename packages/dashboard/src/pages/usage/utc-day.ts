const DAY = new Intl.DateTimeFormat(typeof navigator === 'undefined' ? 'en' : navigator.languages, {
  dateStyle: 'medium',
  timeZone: 'UTC',
});
const MONTH = new Intl.DateTimeFormat(typeof navigator === 'undefined' ? 'en' : navigator.languages, {
  year: 'numeric',
  month: 'long',
  timeZone: 'UTC',
});

/** Formats a day in UTC such as `2026-11-03`. */
export function formatUtcDay(day: string): string {
  const time = Date.parse(`${day}T00:00:00Z`);
  return Number.isNaN(time) ? day : DAY.format(time);
}

/** Formats a month such as `2026-11`. */
export function formatMonth(month: string): string {
  return MONTH.format(Date.parse(`${month}-01T00:00:00Z`));
}
