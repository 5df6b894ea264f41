/** Numbers and times for people. */

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
const SECOND_MS = 1000;
const MINUTE_S = 60;
const HOUR_S = 3600;
const DAY_S = 86_400;
const CENTS = 100;
/** Costs are exact; people need no more than hundredths of a cent. */
const SHOWN_DIGITS = 4;

export function formatBytes(bytes: number): string {
  let [value, unit] = [bytes, 0];
  while (value >= 1024 && unit < UNITS.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

export function formatMiB(mebibytes: number): string {
  return formatBytes(mebibytes * 1024 * 1024);
}

/** Returns the time since a moment, with one unit: `7 min`. */
export function formatAge(moment: string, nowMs = Date.now()): string {
  return formatSeconds((nowMs - Date.parse(moment)) / SECOND_MS);
}

/** Returns the time until a moment; empty if there is none. */
export function formatUntil(moment: string | null, nowMs = Date.now()): string {
  return moment === null ? '' : formatSeconds((Date.parse(moment) - nowMs) / SECOND_MS);
}

export function formatSeconds(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 2 * MINUTE_S) return `${whole} s`;
  if (whole < 2 * HOUR_S) return `${Math.round(whole / MINUTE_S)} min`;
  return whole < 2 * DAY_S ? `${Math.round(whole / HOUR_S)} h` : `${Math.round(whole / DAY_S)} d`;
}

export function formatUsd(cents: number): string {
  return `${(cents / CENTS).toFixed(SHOWN_DIGITS)} USD`;
}

export function formatLabels(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(',');
}
