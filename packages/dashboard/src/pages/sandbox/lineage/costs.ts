/** What the members of a family have cost, from the statements of the months since the family began. */
import type { Coppice, SandboxTree, StatementLine } from '../../../../../sdk/src/index.ts';
import { computeCostUnits, costCents } from '../../../../../contract/src/billing/cost.ts';
import { useResource } from '../../../service/resource.ts';
import { monthsBetween } from '../../usage/months.ts';

/** Costs of ended sandboxes, and of the others as they grow. */
export class FamilyCosts {
  readonly #billed: ReadonlyMap<string, { line: StatementLine; billedMs: number }>;
  readonly #asOf: number;

  constructor(lines: readonly StatementLine[], asOf: string) {
    this.#asOf = Date.parse(asOf);
    const billed = new Map<string, { line: StatementLine; billedMs: number }>();
    for (const line of lines) {
      const before = billed.get(line.sandboxId)?.billedMs ?? 0;
      billed.set(line.sandboxId, { line, billedMs: before + line.billedMs });
    }
    this.#billed = billed;
  }

  /** Returns the cost in cents, up to `now` if it is running; undefined for a sandbox that is in no statement. */
  costOf(id: string, { isRunning, now }: { isRunning: boolean; now: number }): number | undefined {
    const entry = this.#billed.get(id);
    if (entry === undefined) return undefined;
    const { vcpus, memMiB } = entry.line;
    const growthMs = isRunning ? Math.max(0, Math.floor(now - this.#asOf)) : 0;
    return costCents(computeCostUnits({ vcpus, memMiB, billedMs: entry.billedMs + growthMs }));
  }
}

/** A statement has all sandboxes of the organization: those of many are not read only for this. */
const MAX_LINES = 5000;
const MAX_MONTHS = 3;

/** Reads the costs of a family; null if that would be too much. */
export function useFamilyCosts(
  client: Coppice | undefined,
  tree: SandboxTree | undefined,
): FamilyCosts | undefined {
  const rootId = tree?.rootId;
  const { value } = useResource(
    async (signal) => {
      const began = tree?.nodes[0]?.createdAt;
      if (client === undefined || began === undefined) return null;
      const months = monthsBetween(began, new Date().toISOString());
      const { activeSandboxes, historySandboxes } = await client.usage({ signal });
      if (months.length > MAX_MONTHS || activeSandboxes + historySandboxes > MAX_LINES) return null;
      const statements = await Promise.all(months.map((month) => client.statement(month, { signal })));
      const asOf = statements.at(-1)?.asOf ?? began;
      return new FamilyCosts(
        statements.flatMap(({ lines }) => lines),
        asOf,
      );
    },
    [client, rootId],
    { concerns: ({ type }) => COST_EVENTS.has(type) },
  );
  return value ?? undefined;
}

/** After these a sandbox has begun or ceased to cost. */
const COST_EVENTS = new Set([
  'sandbox.created',
  'sandbox.destroyed',
  'sandbox.failed',
  'sandbox.hibernated',
  'sandbox.resumed',
]);
