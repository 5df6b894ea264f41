/** Amounts of money in USD as people write them. */
const DOLLARS = /^\d+(?:\.\d{1,2})?$/u;

/** Returns the whole cents of a text in USD, or undefined if it is no amount above 0. */
export function parseCents(text: string): number | undefined {
  const amount = text.trim();
  if (!DOLLARS.test(amount)) return undefined;
  const cents = Math.round(Number(amount) * 100);
  return Number.isSafeInteger(cents) && cents > 0 ? cents : undefined;
}

/** Returns whether the text can be the beginning of an amount: nothing, zeros, or a dot that a digit follows. */
export function isBegun(text: string): boolean {
  return /^(?:0*|0+\.0{0,2}|\d+\.)$/u.test(text.trim());
}

/** Formats cents for the field: `250`, `99.50`. */
export function writeDollars(cents: number): string {
  return cents % 100 === 0 ? String(cents / 100) : (cents / 100).toFixed(2);
}
