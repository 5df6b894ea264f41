/** Times that a person chooses in a field of a form, in the reader's time zone. */

/** Returns a time as the value of a `datetime-local` field; empty for none. */
export function toFieldTime(timestamp: string | null): string {
  if (timestamp === null) return '';
  const time = new Date(timestamp);
  const local = new Date(time.getTime() - time.getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, 16);
}

/** Returns the value of a `datetime-local` field as a time of the service; null for none. */
export function fromFieldTime(value: string): string | null {
  if (value === '') return null;
  const time = new Date(value);
  return Number.isNaN(time.getTime()) ? null : time.toISOString();
}
