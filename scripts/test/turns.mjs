/**
 * Slow test files take turns in CI, which otherwise takes longer on a slow machine than it may: each day one part of them
 * runs, and after as many days as there are parts each has run. `npm test` without `--turns` runs all of them.
 */
import { SetupError } from '../setup/setup-error.mjs';

export const TURNS = 4;
/** Files that took longer than this when they were recorded take turns. */
const SLOW_SECONDS = 25;
const DAY_MS = 86_400_000;

/**
 * @typedef {object} Turn
 * @property {number} number  from 1 to TURNS
 * @property {ReadonlySet<string>} leftOut  paths in the repository
 */

/**
 * Divides the slow files, longest first, so that all turns take about the same time.
 * @param {ReadonlyMap<string, number>} times  recorded seconds, by path in the repository
 * @param {number} number  from 1 to TURNS
 * @returns {Turn}
 */
export function takeTurn(times, number) {
  const slow = [...times]
    .filter(([file, seconds]) => file.includes('.test.') && seconds > SLOW_SECONDS)
    .toSorted(([a, longer], [b, shorter]) => shorter - longer || (a < b ? -1 : 1))
    .map(([file]) => file);
  return { number, leftOut: new Set(slow.filter((_, index) => index % TURNS !== number - 1)) };
}

/**
 * @param {string | undefined} chosen  COPPICE_TEST_TURN, to repeat the run of another day
 * @param {number} now
 * @returns {number} from 1 to TURNS
 */
export function chooseTurn(chosen, now) {
  if (chosen === undefined) return (Math.floor(now / DAY_MS) % TURNS) + 1;
  const number = Number(chosen);
  if (Number.isInteger(number) && number >= 1 && number <= TURNS) return number;
  throw new SetupError(`COPPICE_TEST_TURN=${chosen}: there is no such turn`, {
    remedy: `use a number from 1 to ${TURNS}`,
  });
}

/** @param {Turn} turn */
export function describeTurn({ number, leftOut }) {
  const files = [...leftOut].toSorted().map((file) => `  ${file}\n`);
  return `turn ${number} of ${TURNS}: these ${files.length} slow files run on other days, and in npm test:\n${files.join('')}`;
}
