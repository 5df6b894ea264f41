const LOCALE: readonly string[] = typeof navigator === 'undefined' ? ['en'] : navigator.languages;
const TIME = { hour: 'numeric', minute: '2-digit', second: '2-digit' } as const;
const THIS_YEAR = new Intl.DateTimeFormat(LOCALE, { month: 'short', day: 'numeric', ...TIME });
const OTHER_YEAR = new Intl.DateTimeFormat(LOCALE, {
  year: 'numeric',
  month: 'numeric',
  day: 'numeric',
  ...TIME,
});

/** Formats the time of an entry to the second, in the reader's time zone. The year is left out if it is that of `now`. */
export function formatLogTime(timestamp: string, now: Date): string {
  const at = new Date(timestamp);
  // A log from elsewhere may have any text as a time.
  if (Number.isNaN(at.getTime())) return timestamp;
  return (at.getFullYear() === now.getFullYear() ? THIS_YEAR : OTHER_YEAR).format(at);
}
