/** Parsers of arguments and of values of options. */
import { InvalidArgumentError } from 'commander';
import { UsageError } from '../output/failure.ts';

/** Makes a parser for a whole number in a range. */
export function whole(least: number, most = Number.MAX_SAFE_INTEGER): (text: string) => number {
  return (text) => {
    const value = /^\d{1,15}$/u.test(text) ? Number(text) : Number.NaN;
    if (value >= least && value <= most) return value;
    const range = most === Number.MAX_SAFE_INTEGER ? `${least} or more` : `${least} to ${most}`;
    throw new InvalidArgumentError(`Expected a whole number, ${range}.`);
  };
}

const SIZE = /^(\d{1,9})(?:\s*(m|mb|mib|g|gb|gib))?$/iu;

/** Parses a size: `512`, `512m` and `2g` mean MiB and GiB. Returns MiB. */
export function parseMiB(text: string): number {
  const match = SIZE.exec(text);
  if (match === null) throw new InvalidArgumentError('Expected a size such as 512m or 2g.');
  return Number(match[1]) * (match[2]?.toLowerCase().startsWith('g') === true ? 1024 : 1);
}

const DURATION = /^(\d{1,9})(s|m|h|d)?$/u;
const SECONDS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 };

/** Parses a time: `90`, `90s`, `10m`, `2h`, `1d`. Returns seconds. */
export function parseSeconds(text: string): number {
  const match = DURATION.exec(text);
  if (match === null) throw new InvalidArgumentError('Expected a time such as 90, 10m, 2h or 1d.');
  return Number(match[1]) * (SECONDS[match[2] ?? 's'] ?? 1);
}

/** Parses one more `key=value` of a repeated option. */
export function parsePair(text: string, before: Record<string, string> = {}): Record<string, string> {
  const end = text.indexOf('=');
  if (end <= 0) throw new InvalidArgumentError('Expected key=value.');
  return joinEntries(before, [[text.slice(0, end), text.slice(end + 1)]]);
}

/** Returns an object with further entries. With fromEntries a key named __proto__ stays a key. */
export function joinEntries(
  before: Record<string, string>,
  entries: readonly (readonly [string, string])[],
): Record<string, string> {
  return Object.fromEntries([...Object.entries(before), ...entries]);
}

/** Collects the values of a repeated option. */
export function collect(text: string, before: string[] = []): string[] {
  return [...before, text];
}

/** Parses an argument. Throws UsageError with its name. */
export function parseOperand<Value>(name: string, text: string, parse: (text: string) => Value): Value {
  try {
    return parse(text);
  } catch (error) {
    throw new UsageError(`<${name}> is "${text}": ${(error as Error).message}`);
  }
}
