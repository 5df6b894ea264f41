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

/** Reads labels, one on each line as `name=value`. Throws with the number of the line that is none. */
export function parseLabels(text: string): Record<string, string> {
  const labels: Record<string, string> = {};
  for (const [index, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue;
    const [, name, value] = /^\s*([^=]*[^=\s])\s*=(.*)$/u.exec(line) ?? [];
    if (name === undefined || value === undefined)
      throw new Error(`Line ${index + 1} of the labels must be name=value.`);
    labels[name] = value.trim();
  }
  return labels;
}
