/** Reads the fields of a budget as people type them. */
import type { BudgetOptions } from '../../../../sdk/src/index.ts';
import { parseCents } from '../../ui/dollars.ts';

const MAX_CENTS = 100_000_000_000;
const MAX_PERCENT = 1000;
const MAX_PERCENTS = 10;

export interface BudgetText {
  dollars: string;
  percents: string;
}

export interface BudgetInput {
  /** Undefined while a field is empty or wrong. */
  options: BudgetOptions | undefined;
  /** Why a field that is not empty is wrong. */
  faults: Partial<Record<keyof BudgetText, string>>;
}

export function readBudget({ dollars, percents }: BudgetText): BudgetInput {
  const monthCents = readDollars(dollars.trim());
  const alertPercents = readPercents(percents);
  const faults = {
    ...(dollars.trim() !== '' && monthCents === undefined
      ? { dollars: 'Write an amount from 0.01 to 1000000000, such as 250 or 99.50.' }
      : {}),
    ...(percents.trim() !== '' && alertPercents === undefined
      ? {
          percents: `Write up to ${MAX_PERCENTS} whole numbers from 1 to ${MAX_PERCENT}, such as 50, 80, 100.`,
        }
      : {}),
  };
  const isComplete = monthCents !== undefined && alertPercents !== undefined;
  return { options: isComplete ? { monthCents, alertPercents } : undefined, faults };
}

function readDollars(text: string): number | undefined {
  const cents = parseCents(text.replace(',', '.'));
  return cents !== undefined && cents <= MAX_CENTS ? cents : undefined;
}

function readPercents(text: string): number[] | undefined {
  const parts = text.split(/[\s,;%]+/u).filter((part) => part !== '');
  const percents = [...new Set(parts.map(Number))].toSorted((a, b) => a - b);
  const fits = percents.every((one) => Number.isSafeInteger(one) && one >= 1 && one <= MAX_PERCENT);
  return fits && percents.length > 0 && percents.length <= MAX_PERCENTS ? percents : undefined;
}
