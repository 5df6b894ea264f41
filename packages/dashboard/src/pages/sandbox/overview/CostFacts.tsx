import type { SandboxInfo } from '../../../../../sdk/src/index.ts';
import { computeCostUnits, costCents } from '../../../../../contract/src/billing/cost.ts';
import { useNow } from '../../../service/resource.ts';
import { costSoFar } from '../../../ui/cost.ts';
import { formatCents, formatDuration } from '../../../ui/format.ts';
import { Facts } from '../../../ui/Page.tsx';

const HOUR_MS = 3_600_000;

/** The cost of the sandbox, which grows while it runs. */
export function CostFacts({ record }: { record: SandboxInfo }) {
  const { vcpus, memMiB, endedAt, disk } = record;
  const hourly = costCents(computeCostUnits({ vcpus, memMiB, billedMs: HOUR_MS }));
  return (
    <>
      <Facts
        facts={[
          [endedAt === null ? 'Cost so far' : 'Cost', <Amount key="amount" record={record} />],
          ['Billed time', <BilledTime key="time" record={record} />],
          ['Price while it runs', `${formatCents(hourly)} an hour`],
        ]}
      />
      <p class="hint">
        For processors and memory, while it runs. Hibernation costs nothing.
        {disk !== null && ' What its disk stores is billed with the disk.'}
      </p>
    </>
  );
}

const DECIMALS = 6;
/** All digits stay in sight, so that the amount grows without moving. */
const AMOUNT = new Intl.NumberFormat([...navigator.languages], {
  style: 'currency',
  currency: 'USD',
  minimumFractionDigits: DECIMALS,
  maximumFractionDigits: DECIMALS,
});

function Amount({ record }: { record: SandboxInfo }) {
  const now = useNow();
  return <b class="amount">{AMOUNT.format(costSoFar(record, now.value) / 100)}</b>;
}

function BilledTime({ record }: { record: SandboxInfo }) {
  const now = useNow();
  const { billedMs, runningSince } = record;
  const open = runningSince === null ? 0 : Math.max(0, now.value - Date.parse(runningSince));
  return <>{formatDuration((billedMs ?? 0) + open)}</>;
}
