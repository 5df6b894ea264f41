import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useMemo } from 'preact/hooks';
import { costCents } from '../../../../contract/src/billing/cost.ts';
import type { Statement } from '../../../../sdk/src/index.ts';
import { teamNameOf } from '../../service/session.ts';
import { Badge } from '../../ui/Badge.tsx';
import { Button } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { DataTable } from '../../ui/DataTable.tsx';
import { formatCents, formatMoment, formatNumber } from '../../ui/format.ts';
import { Card, Facts } from '../../ui/Page.tsx';
import { toPython } from '../../ui/snippets.ts';
import { Empty } from '../../ui/states.tsx';
import { saveText } from './csv.ts';
import { DailyChart } from './DailyChart.tsx';
import { GroupedCosts, ShareBar } from './GroupedCosts.tsx';
import { costsByDay, sumUnits, type CostLine } from './statement-costs.ts';
import { writeStatement } from './statement-csv.ts';
import { StatementTable } from './StatementTable.tsx';
import type { MonthCosts } from './use-month.ts';
import { formatMonth, formatUtcDay } from './utc-day.ts';
import { Segments } from '../../ui/Segments.tsx';

/** The statement of one month: sums, days, parts and lines. */
export function MonthStatement({ statement, lines }: MonthCosts) {
  if (lines.length === 0 && statement.disks.length === 0)
    return (
      <Empty icon="chart" title={`Nothing was used in ${formatMonth(statement.month)}`}>
        The statement has a line for each sandbox that ran in the month, and for each disk that stored data.
      </Empty>
    );
  return (
    <>
      <Sums statement={statement} lines={lines} />
      {lines.length > 0 && <Days statement={statement} lines={lines} />}
      {lines.length > 0 && <GroupedCosts lines={lines} />}
      {lines.length > 0 && <StatementTable lines={lines} />}
      {statement.disks.length > 0 && <Disks statement={statement} />}
    </>
  );
}

function Sums({ statement, lines }: MonthCosts) {
  const { month, complete, asOf, diskCostCents, teams, sandboxes } = statement;
  return (
    <Card
      title={formatMonth(month)}
      actions={
        <>
          <Badge tone={complete ? 'good' : 'busy'}>{complete ? 'complete' : 'can still change'}</Badge>
          <CopyAsCode
            method="GET"
            path={`/v1/statements/${month}`}
            typescript={`const { costCents, lines } = await client.statement('${month}');`}
            python={`print(client.statement(${toPython(month)}).cost_cents)`}
          />
          <Button
            icon="download"
            onClick={() => saveText(`coppice-${month}.csv`, writeStatement(statement, lines), 'text/csv')}
          >
            CSV
          </Button>
        </>
      }
    >
      <Facts
        facts={[
          ['Total', <b>{formatCents(statement.costCents)}</b>],
          ['Sandboxes', formatCents(costCents(sumUnits(lines)))],
          ['Disks', formatCents(diskCostCents)],
          ['Sandboxes that ran', formatNumber(sandboxes)],
          ['As of', formatMoment(asOf)],
        ]}
      />
      {teams.length > 1 && <Teams teams={teams} />}
    </Card>
  );
}

function Teams({ teams }: Pick<Statement, 'teams'>) {
  return (
    <Facts
      facts={teams
        .toSorted((a, b) => b.costCents - a.costCents)
        .map(({ teamId, costCents: cents }): readonly [string, ComponentChildren] => [
          `Team ${teamNameOf(teamId)}`,
          formatCents(cents),
        ])}
    />
  );
}

function Days({ statement, lines }: { statement: Statement; lines: CostLine[] }) {
  const isTable = useSignal(false);
  const { days, unplacedUnits } = useMemo(() => costsByDay(lines, statement), [lines, statement]);
  const chart = useMemo(
    () => ({ days: days.map(({ day }) => day), cents: days.map(({ units }) => costCents(units)) }),
    [days],
  );
  const most = Math.max(...chart.cents);
  return (
    <Card
      title="Sandboxes by day"
      actions={
        <Segments
          label="Form"
          options={[
            [false, 'Chart'],
            [true, 'Table'],
          ]}
          value={isTable.value}
          onValue={(isOne) => (isTable.value = isOne)}
        />
      }
    >
      {isTable.value ? (
        <ul class="shares" aria-label="Cost per day">
          {days.map(({ day, units }, index) => (
            <ShareBar
              key={day}
              name={formatUtcDay(day)}
              value={formatCents(costCents(units))}
              share={most === 0 ? 0 : (chart.cents[index] ?? 0) / most}
            />
          ))}
        </ul>
      ) : (
        <DailyChart {...chart} />
      )}
      <p class="hint">
        Days are in UTC. The cost of a sandbox is spread evenly over its life in this month, so a day can be
        off for sandboxes that were hibernated; the sum is exact. Disks are not included.
        {unplacedUnits > 0n &&
          ` ${formatCents(costCents(unplacedUnits))} of sandboxes that are no longer listed is in no day.`}
      </p>
    </Card>
  );
}

function Disks({ statement: { disks, diskGbHours, diskCostCents } }: { statement: Statement }) {
  return (
    <Card title="Storage of disks">
      <p class="soft">
        {formatNumber(Number(diskGbHours.toPrecision(3)))} GB hours, {formatCents(diskCostCents)}
      </p>
      <DataTable
        label="Storage of disks"
        rows={disks.toSorted((a, b) => b.costCents - a.costCents)}
        rowId={({ disk, teamId }) => `${teamId} ${disk}`}
        columns={[
          { id: 'disk', label: 'Disk', width: '2fr', cell: ({ disk }) => <b>{disk}</b> },
          { id: 'team', label: 'Team', isMinor: true, cell: ({ teamId }) => teamNameOf(teamId) },
          {
            id: 'hours',
            label: 'GB hours',
            width: '8rem',
            align: 'end',
            cell: ({ gbHours }) => formatNumber(Number(gbHours.toPrecision(3))),
          },
          {
            id: 'cost',
            label: 'Cost',
            width: '8rem',
            align: 'end',
            cell: ({ costCents: cents }) => formatCents(cents),
          },
        ]}
      />
    </Card>
  );
}
