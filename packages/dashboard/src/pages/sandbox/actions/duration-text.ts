/** Durations as a person types them: `90`, `15m`, `2h 30m`. */
const UNITS_S: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 };
const PART = /(\d+)\s*([smhd]?)/gu;
const WHOLE = /^\s*\d+\s*[smhd]?(?:\s*\d+\s*[smhd])*\s*$/u;

/** Returns the seconds that a text means; a number without a unit counts seconds. Undefined for another text. */
export function parseSeconds(text: string): number | undefined {
  if (!WHOLE.test(text.toLowerCase())) return undefined;
  let total = 0;
  for (const [, digits = '', unit = ''] of text.toLowerCase().matchAll(PART))
    total += Number(digits) * (UNITS_S[unit] ?? 1);
  return Number.isSafeInteger(total) ? total : undefined;
}

/** Writes seconds so that `parseSeconds` reads the same, for example `1h 30m`. */
export function writeSeconds(seconds: number): string {
  if (seconds === 0) return '0';
  const parts: string[] = [];
  let rest = seconds;
  for (const unit of ['d', 'h', 'm', 's']) {
    const size = UNITS_S[unit] ?? 1;
    if (rest >= size) parts.push(`${Math.floor(rest / size)}${unit}`);
    rest %= size;
  }
  return parts.join(' ');
}
