/**
 * The cost of one sandbox. The history has that of a sandbox that has ended. For a live one, the statements of the months
 * in which it existed have it up to the time of the statement; from then on it grows with the time that it runs.
 */
import { computeCostUnits, costCents } from '../../../../../contract/src/billing/cost.ts';
import type { Coppice, SandboxInfo, Statement } from '../../../../../sdk/src/index.ts';

export interface CostSoFar {
  /** Cost up to `asOf`, in cents. */
  cents: number;
  /** Milliseconds since 1970. Infinity once the cost is final. */
  asOf: number;
  /** The months of the statements that were read; none if the history had the cost. */
  months: readonly string[];
}

/** Older statements are not read: each is a request of its own. */
const MAX_MONTHS = 12;

/** Reads the cost. Undefined if the service has no figure, for example of a sandbox that never ran. */
export async function readCost(
  client: Coppice,
  record: SandboxInfo,
  signal: AbortSignal,
): Promise<CostSoFar | undefined> {
  if (record.endedAt !== null) return readFinalCost(client, record, signal);
  const months = listMonths(record.createdAt, new Date());
  const statements = await Promise.all(months.map((month) => client.statement(month, { signal })));
  return sumStatements(statements, record.id);
}

/** Adds up the lines of a sandbox. */
export function sumStatements(
  statements: readonly Pick<Statement, 'month' | 'asOf' | 'lines'>[],
  sandboxId: string,
): CostSoFar {
  const lines = statements.flatMap(({ lines: all }) => all.filter((line) => line.sandboxId === sandboxId));
  return {
    cents: lines.reduce((sum, line) => sum + line.costCents, 0),
    asOf: Math.max(0, ...statements.map(({ asOf }) => Date.parse(asOf))),
    months: statements.map(({ month }) => month),
  };
}

/** Returns the cost at a moment after the figure, of a sandbox that has run since. */
export function extrapolate({ cents, asOf }: CostSoFar, record: SandboxInfo, now: number): number {
  const { vcpus, memMiB, status } = record;
  if (status !== 'running' || now <= asOf) return cents;
  return cents + costCents(computeCostUnits({ vcpus, memMiB, billedMs: Math.floor(now - asOf) }));
}

/** Returns the cost of an hour of running, in cents. */
export function hourlyCents({ vcpus, memMiB }: Pick<SandboxInfo, 'vcpus' | 'memMiB'>): number {
  return costCents(computeCostUnits({ vcpus, memMiB, billedMs: 3_600_000 }));
}

/** Lists the months in UTC from a time to another, at most the last twelve. */
export function listMonths(from: string, to: Date): string[] {
  const months: string[] = [];
  const at = new Date(from);
  for (let index = at.getUTCFullYear() * 12 + at.getUTCMonth(); ; index += 1) {
    if (index > to.getUTCFullYear() * 12 + to.getUTCMonth()) return months.slice(-MAX_MONTHS);
    months.push(`${Math.floor(index / 12)}-${String((index % 12) + 1).padStart(2, '0')}`);
  }
}

async function readFinalCost(
  client: Coppice,
  record: SandboxInfo,
  signal: AbortSignal,
): Promise<CostSoFar | undefined> {
  const ended = Date.parse(record.endedAt ?? '');
  // The history is filtered by the time of the end, and not by the id.
  const range = { from: new Date(ended), to: new Date(ended + 1), signal };
  for await (const { id, costCents: cents } of client.history(range))
    if (id === record.id) return { cents, asOf: Infinity, months: [] };
  return undefined;
}
