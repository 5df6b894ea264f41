/** Numbers, sizes, times and money in the form of the reader's browser. */
const LOCALE: readonly string[] = typeof navigator === 'undefined' ? ['en'] : navigator.languages;
const NUMBER = new Intl.NumberFormat(LOCALE);
const MOMENT = new Intl.DateTimeFormat(LOCALE, { dateStyle: 'medium', timeStyle: 'medium' });
const DAY = new Intl.DateTimeFormat(LOCALE, { dateStyle: 'medium' });
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

export function formatNumber(value: number): string {
  return NUMBER.format(value);
}

/** Formats bytes with three digits, for example `1.25 MiB`. */
export function formatBytes(bytes: number): string {
  const power = Math.max(0, Math.min(UNITS.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10)));
  const value = bytes / 1024 ** power;
  const digits = { maximumSignificantDigits: value >= 1000 ? 4 : 3 };
  return `${value.toLocaleString(LOCALE as string[], power === 0 ? {} : digits)} ${UNITS[power]}`;
}

/** Formats MiB, for example `2 GiB`. */
export function formatMiB(mebibytes: number): string {
  return formatBytes(mebibytes * 2 ** 20);
}

/** Formats US cents. Small amounts keep the digits that make them differ from nothing. */
export function formatCents(cents: number): string {
  const dollars = cents / 100;
  const decimals = dollars === 0 || Math.abs(dollars) >= 1 ? 2 : Math.abs(dollars) >= 0.01 ? 4 : 6;
  return dollars.toLocaleString(LOCALE as string[], {
    style: 'currency',
    currency: 'USD',
    minimumFractionDigits: 2,
    maximumFractionDigits: decimals,
  });
}

/** Formats a duration with its two largest units, for example `3 min 12 s`. */
export function formatDuration(ms: number): string {
  if (ms < SECOND_MS) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < MINUTE_MS) return `${Math.floor(ms / SECOND_MS)} s`;
  if (ms < HOUR_MS) return join([ms / MINUTE_MS, 'min'], [(ms % MINUTE_MS) / SECOND_MS, 's']);
  if (ms < DAY_MS) return join([ms / HOUR_MS, 'h'], [(ms % HOUR_MS) / MINUTE_MS, 'min']);
  return join([ms / DAY_MS, 'd'], [(ms % DAY_MS) / HOUR_MS, 'h']);
}

function join([first, firstUnit]: [number, string], [second, secondUnit]: [number, string]): string {
  const rest = Math.floor(second);
  return `${Math.floor(first)} ${firstUnit}${rest === 0 ? '' : ` ${rest} ${secondUnit}`}`;
}

/** Formats a time of the service in the reader's time zone. */
export function formatMoment(timestamp: string | number): string {
  return MOMENT.format(new Date(timestamp));
}

export function formatDay(timestamp: string | number): string {
  return DAY.format(new Date(timestamp));
}

/** Describes a time relative to now, for example `5 min ago` or `in 2 h`. */
export function formatAge(timestamp: string, now: number): string {
  const ms = now - Date.parse(timestamp);
  if (Math.abs(ms) < 5 * SECOND_MS) return 'now';
  const text = formatRough(Math.abs(ms));
  return ms > 0 ? `${text} ago` : `in ${text}`;
}

function formatRough(ms: number): string {
  if (ms < MINUTE_MS) return `${Math.floor(ms / SECOND_MS)} s`;
  if (ms < HOUR_MS) return `${Math.floor(ms / MINUTE_MS)} min`;
  if (ms < DAY_MS) return `${Math.floor(ms / HOUR_MS)} h`;
  return `${Math.floor(ms / DAY_MS)} d`;
}

/** Shortens an image reference: without the digest, and without the parts that every reference of Docker Hub has. */
export function formatImage(image: string): string {
  return image.replace(/@sha256:[0-9a-f]+$/u, '').replace(/^docker\.io\/(?:library\/)?/u, '');
}
