import { useLocation } from 'preact-iso';
import type { Coppice, Usage as UsageInfo } from '../../../../sdk/src/index.ts';
import { useResource } from '../../service/resource.ts';
import { client as currentClient, place } from '../../service/session.ts';
import '../../styles/usage.css';
import { Button, IconButton } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { formatCents, formatMoment, formatNumber } from '../../ui/format.ts';
import { Meter } from '../../ui/Meter.tsx';
import { Card, Facts, Page } from '../../ui/Page.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import { Budgets } from './Budgets.tsx';
import { MonthStatement } from './MonthStatement.tsx';
import { monthOf, monthsBack, nextMonth, previousMonth } from './months.ts';
import { useMonth } from './use-month.ts';
import { formatMonth } from './utc-day.ts';

const MONTH = /^[2-9]\d{3}-(0[1-9]|1[0-2])$/u;
const LISTED_MONTHS = 24;
const SECONDS_PER_HOUR = 3600;
/** Below it the credit is shown in the colour of a warning. */
const LOW_SHARE = 0.1;

/** `/usage`, or `/usage?month=2026-10` */
export function Usage() {
  const client = currentClient.value;
  if (client === undefined)
    return (
      <Page title="Usage">
        <Empty icon="people" title="You are in no team">
          An owner of the organization can add you to one.
        </Empty>
      </Page>
    );
  return <Opened client={client} />;
}

function Opened({ client }: { client: Coppice }) {
  const { query } = useLocation();
  const asked = query['month'] ?? '';
  const month = MONTH.test(asked) ? asked : monthOf(Date.now());
  const resource = useMonth(client, month);
  return (
    <Page
      title="Usage"
      lead="Costs are exact to the millisecond. Months and days are in UTC, as the service bills them."
      actions={
        <CopyAsCode
          method="GET"
          path="/v1/usage"
          typescript="const { totalCostCents, creditLeftCents } = await client.usage();"
          python="print(client.usage().total_cost_cents)"
        />
      }
    >
      <div class="usage">
        <Totals client={client} />
        <Budgets client={client} />
        <MonthPicker month={month} isLoading={resource.isLoading} reload={resource.reload} />
        <Loaded resource={resource} rows={8}>
          {(costs) => <MonthStatement key={month} {...costs} />}
        </Loaded>
      </div>
    </Page>
  );
}

function Totals({ client }: { client: Coppice }) {
  const resource = useResource((signal) => client.usage({ signal }), [client], {
    concerns: ({ type }) =>
      type === 'usage.billed' || type.startsWith('credit.') || type === 'sandbox.created',
  });
  return (
    <Loaded resource={resource} rows={2}>
      {(usage) => <TotalsCard usage={usage} />}
    </Loaded>
  );
}

function TotalsCard({ usage }: { usage: UsageInfo }) {
  const { creditLeftCents, creditCents, diskCostCents } = usage;
  return (
    <Card title={`All time, ${place.value?.organization.name ?? ''}`}>
      {creditLeftCents !== null && creditLeftCents <= 0 && (
        <p class="fault" role="alert">
          No credit is left: nothing new starts, and running sandboxes are hibernated. An operator can grant
          more.
        </p>
      )}
      <div class="usage-totals">
        <Total label="Cost so far" value={formatCents(usage.totalCostCents)} note="sandboxes and disks" />
        {creditCents !== null && creditLeftCents !== null && (
          <div class="usage-total">
            <Total
              label="Credit left"
              value={formatCents(creditLeftCents)}
              note={`of ${formatCents(creditCents)} granted`}
            />
            <CreditBar left={creditLeftCents} granted={creditCents} />
          </div>
        )}
        <Total
          label="Sandboxes that exist"
          value={formatCents(usage.activeCostCents)}
          note={`${formatNumber(usage.activeSandboxes)}, up to now`}
        />
        <Total
          label="Ended sandboxes"
          value={formatCents(usage.historyCostCents)}
          note={formatNumber(usage.historySandboxes)}
        />
        <Total label="Disks" value={formatCents(diskCostCents)} note="stored data" />
      </div>
      <Facts
        facts={[
          ['CPU time', `${formatHours(usage.cpuSeconds / SECONDS_PER_HOUR)} vCPU hours`],
          ['Memory', `${formatHours(usage.memSeconds / SECONDS_PER_HOUR)} GiB hours`],
          ['Disk storage', `${formatHours(usage.diskGbHours)} GB hours`],
          ['As of', formatMoment(usage.asOf)],
        ]}
      />
      <p class="hint">
        Included: the time that sandboxes run, from their create to their end without hibernation, and the
        data that disks store. Snapshots, hibernated sandboxes and creates that never ran cost nothing.
      </p>
    </Card>
  );
}

function CreditBar({ left, granted }: { left: number; granted: number }) {
  const share = granted > 0 ? Math.max(0, Math.min(1, left / granted)) : 0;
  const percent = Math.round(share * 100);
  return (
    <Meter
      label="Credit left"
      value={percent}
      max={100}
      text={`${percent} %`}
      share={share}
      tone={share < LOW_SHARE ? 'warn' : undefined}
    />
  );
}

function Total({ label, value, note }: { label: string; value: string; note: string }) {
  return (
    <div class="usage-figure">
      <span class="soft">{label}</span>
      <b>{value}</b>
      <span class="hint">{note}</span>
    </div>
  );
}

function formatHours(hours: number): string {
  return formatNumber(Number(hours.toPrecision(3)));
}

function MonthPicker({
  month,
  isLoading,
  reload,
}: {
  month: string;
  isLoading: boolean;
  reload: () => void;
}) {
  const { route } = useLocation();
  const current = monthOf(Date.now());
  const listed = monthsBack(current, LISTED_MONTHS);
  const open = (chosen: string): void => route(`/usage?month=${chosen}`);
  return (
    <div class="filters month-picker">
      <h2>Statement</h2>
      <span class="gap" />
      <div class="month-choice">
        <span class="flip">
          <IconButton icon="chevronRight" label="Earlier month" onClick={() => open(previousMonth(month))} />
        </span>
        <select aria-label="Month" value={month} onChange={(event) => open(event.currentTarget.value)}>
          {(listed.includes(month) ? listed : [...listed, month]).map((one) => (
            <option key={one} value={one}>
              {formatMonth(one)}
            </option>
          ))}
        </select>
        <IconButton
          icon="chevronRight"
          label="Later month"
          isDisabled={month >= current}
          onClick={() => open(nextMonth(month))}
        />
      </div>
      <Button icon="refresh" isBusy={isLoading} onClick={reload}>
        Read again
      </Button>
    </div>
  );
}
