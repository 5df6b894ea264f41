import type { SandboxInfo } from '../../../../../sdk/src/index.ts';
import { useNow, useResource } from '../../../service/resource.ts';
import { client } from '../../../service/session.ts';
import { formatCents } from '../../../ui/format.ts';
import { Facts } from '../../../ui/Page.tsx';
import { Failure } from '../../../ui/states.tsx';
import { extrapolate, hourlyCents, readCost, type CostSoFar } from './cost-so-far.ts';

/** The cost of the sandbox, which grows while it runs, and how it is known. */
export function CostFacts({ record }: { record: SandboxInfo }) {
  const current = client.value;
  const cost = useResource(
    async (signal) => (current === undefined ? null : ((await readCost(current, record, signal)) ?? null)),
    // While it runs the page counts on from one reading; each change of the state is billed anew.
    [current, record.id, record.status],
  );
  if (cost.value === undefined && cost.error !== undefined)
    return <Failure error={cost.error} onRetry={cost.reload} />;
  return (
    <>
      <Facts
        facts={[
          ['Cost so far', <Amount key="amount" cost={cost.value} record={record} />],
          ['Price while it runs', `${formatCents(hourlyCents(record))} an hour`],
        ]}
      />
      <p class="hint">{describe(cost.value, record)}</p>
    </>
  );
}

function Amount({ cost, record }: { cost: CostSoFar | null | undefined; record: SandboxInfo }) {
  const now = useNow();
  if (cost === undefined) return <span class="soft">…</span>;
  if (cost === null) return <b class="amount">{formatCents(0)}</b>;
  return <b class="amount">{formatCents(extrapolate(cost, record, now.value))}</b>;
}

function describe(cost: CostSoFar | null | undefined, { status, disk }: SandboxInfo): string {
  const storage = disk === null ? '' : ' The storage of its disk is billed with the disk.';
  if (cost === undefined) return 'Reading the figures of the service.';
  if (cost === null) return `It never ran, so it cost nothing.${storage}`;
  if (cost.asOf === Infinity) return `The final amount for processors and memory.${storage}`;
  const span =
    cost.months.length === 1
      ? 'the statement of this month'
      : `the statements of ${cost.months.length} months`;
  const rest = status === 'running' ? ', and the time since then' : '';
  return `Processors and memory: ${span}${rest}.${storage}`;
}
