/** Costs of the members of a family: records contain those of members that exist, statements of those that have ended. */
import { computeCostUnits, costCents } from '../../../../../contract/src/billing/cost.ts';
import type { Coppice, SandboxTree, StatementLine } from '../../../../../sdk/src/index.ts';
import { useResource } from '../../../service/resource.ts';
import { costSoFar } from '../../../ui/cost.ts';
import { monthsBetween } from '../../usage/months.ts';
import type { FamilyNode } from './family.ts';
import type { LiveRecords } from './node-text.ts';

/** Costs of ended sandboxes by id, in cents. */
export type FamilyCosts = ReadonlyMap<string, number>;

/** Returns the cost of a member up to `now`, in cents. Undefined if it is not known; snapshots have none. */
export function costOf(
  node: FamilyNode,
  { live, costs, now }: { live: LiveRecords; costs: FamilyCosts | undefined; now: number },
): number | undefined {
  if (node.kind === 'snapshot') return undefined;
  const record = live.get(node.id);
  if (record !== undefined && record.billedMs !== null) return costSoFar(record, now);
  return node.record.endedAt === null ? undefined : costs?.get(node.id);
}

/** Sums the lines of each sandbox over the months. */
export function sumLines(lines: readonly StatementLine[]): FamilyCosts {
  const units = new Map<string, bigint>();
  for (const line of lines)
    units.set(line.sandboxId, (units.get(line.sandboxId) ?? 0n) + computeCostUnits(line));
  return new Map(Array.from(units, ([id, sum]) => [id, costCents(sum)]));
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
      return sumLines(statements.flatMap(({ lines }) => lines));
    },
    [client, rootId],
    { concerns: ({ type }) => type === 'sandbox.destroyed' || type === 'sandbox.failed' },
  );
  return value ?? undefined;
}
