/**
 * The costs of a statement by day, label and image. All sums are exact: they add whole cost units, and only what is shown
 * is rounded, so the parts add up to the statement.
 */
import { computeCostUnits } from '../../../../contract/src/billing/cost.ts';
import type { HistoryEntry, SandboxInfo, StatementLine } from '../../../../sdk/src/index.ts';

const DAY_MS = 86_400_000;

/** Facts about a sandbox besides its line. */
export interface Life {
  id: string;
  name: string | null;
  createdAt: string;
  /** Null while it exists. */
  endedAt: string | null;
  labels: Readonly<Record<string, string>>;
}

export interface CostLine extends StatementLine {
  units: bigint;
  /** Undefined if neither the history nor the list of sandboxes has it. */
  life: Life | undefined;
}

export function lifeOfEnded({ id, createdAt, destroyedAt, labels }: HistoryEntry): Life {
  return { id, name: null, createdAt, endedAt: destroyedAt, labels };
}

export function lifeOfPresent({ id, name, createdAt, endedAt, labels }: SandboxInfo): Life {
  return { id, name, createdAt, endedAt, labels };
}

export function joinLines(lines: readonly StatementLine[], lives: readonly Life[]): CostLine[] {
  const byId = new Map(lives.map((life) => [life.id, life]));
  return lines.map((line) => ({ ...line, units: computeCostUnits(line), life: byId.get(line.sandboxId) }));
}

export function sumUnits(lines: readonly CostLine[]): bigint {
  return lines.reduce((sum, { units }) => sum + units, 0n);
}

/** The time of a statement: its month, up to now. */
export interface Period {
  from: string;
  to: string;
  asOf: string;
}

interface DayCost {
  /** Day in UTC, for example `2026-11-03`. */
  day: string;
  units: bigint;
}

export interface DailyCosts {
  /** All days of the month. */
  days: DayCost[];
  /** Cost of sandboxes whose life is not known. */
  unplacedUnits: bigint;
}

/**
 * Spreads the billed time of each sandbox evenly over the part of its life within the month: exact for a sandbox that
 * was never hibernated.
 */
export function costsByDay(lines: readonly CostLine[], { from, to, asOf }: Period): DailyCosts {
  const start = Date.parse(from);
  const end = Date.parse(to);
  const units = Array.from({ length: Math.round((end - start) / DAY_MS) }, () => 0n);
  let unplacedUnits = 0n;
  for (const line of lines) {
    const parts = line.life === undefined ? [] : spread(line.life, { start, end, now: Date.parse(asOf) });
    const last = parts.at(-1);
    if (last === undefined) unplacedUnits += line.units;
    let placedMs = 0;
    for (const { day, untilShare } of parts) {
      const untilMs = last?.day === day ? line.billedMs : Math.floor(line.billedMs * untilShare);
      units[day] = (units[day] ?? 0n) + computeCostUnits({ ...line, billedMs: untilMs - placedMs });
      placedMs = untilMs;
    }
  }
  const days = units.map((sum, index) => ({
    day: new Date(start + index * DAY_MS).toISOString().slice(0, 10),
    units: sum,
  }));
  return { days, unplacedUnits };
}

/** Returns the days of a life within a month, and how much of that part is over at the end of each. */
function spread(
  { createdAt, endedAt }: Life,
  { start, end, now }: { start: number; end: number; now: number },
): { day: number; untilShare: number }[] {
  const first = Math.max(start, Date.parse(createdAt));
  const last = Math.min(end, endedAt === null ? now : Date.parse(endedAt));
  if (!(last > first))
    return first >= start && first < end ? [{ day: dayOf(first, start), untilShare: 1 }] : [];
  const lastDay = dayOf(last - 1, start);
  const parts: { day: number; untilShare: number }[] = [];
  for (let day = dayOf(first, start); day <= lastDay; day += 1) {
    const until = Math.min(last, start + (day + 1) * DAY_MS);
    parts.push({ day, untilShare: (until - first) / (last - first) });
  }
  return parts;
}

function dayOf(time: number, start: number): number {
  return Math.floor((time - start) / DAY_MS);
}

export interface GroupCost {
  /** Null: sandboxes without it. Undefined: sandboxes of which it is not known. */
  value: string | null | undefined;
  units: bigint;
  sandboxes: number;
  billedMs: number;
}

/** Sums the costs by the value of a label, the highest first. */
export function costsByLabel(lines: readonly CostLine[], label: string): GroupCost[] {
  return groupCosts(lines, ({ life }) => {
    if (life === undefined) return undefined;
    return Object.hasOwn(life.labels, label) ? life.labels[label] : null;
  });
}

/** Sums the costs by a value of each line, the highest first. */
export function groupCosts(
  lines: readonly CostLine[],
  valueOf: (line: CostLine) => string | null | undefined,
): GroupCost[] {
  const groups = new Map<string | null | undefined, GroupCost>();
  for (const line of lines) {
    const value = valueOf(line);
    const before = groups.get(value) ?? { value, units: 0n, sandboxes: 0, billedMs: 0 };
    groups.set(value, {
      value,
      units: before.units + line.units,
      sandboxes: before.sandboxes + 1,
      billedMs: before.billedMs + line.billedMs,
    });
  }
  return Array.from(groups.values()).sort((a, b) => compareUnits(b.units, a.units));
}

function compareUnits(a: bigint, b: bigint): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Returns the names of all labels, those of most sandboxes first. */
export function labelNames(lines: readonly CostLine[]): string[] {
  const counts = new Map<string, number>();
  for (const { life } of lines)
    for (const name of Object.keys(life?.labels ?? {})) counts.set(name, (counts.get(name) ?? 0) + 1);
  return Array.from(counts)
    .sort(([a, countA], [b, countB]) => countB - countA || (a < b ? -1 : 1))
    .map(([name]) => name);
}

export type LineOrder = 'cost' | 'billed' | 'id';

/** Returns the lines in an order: the highest cost or the longest time first, or by id. */
export function sortLines(lines: readonly CostLine[], order: LineOrder): CostLine[] {
  return lines.toSorted((a, b) => {
    if (order === 'cost') return compareUnits(b.units, a.units);
    if (order === 'billed') return b.billedMs - a.billedMs;
    return a.sandboxId < b.sandboxId ? -1 : 1;
  });
}
