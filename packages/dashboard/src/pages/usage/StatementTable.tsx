import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { costCents } from '../../../../contract/src/billing/cost.ts';
import { Labels } from '../../ui/Badge.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { formatCents, formatDuration, formatMiB, formatNumber, formatImage } from '../../ui/format.ts';
import { GuestText } from '../../ui/GuestText.tsx';
import { Card } from '../../ui/Page.tsx';
import { sortLines, type CostLine, type LineOrder } from './statement-costs.ts';
import { Segments } from '../../ui/Segments.tsx';

const COLUMNS: readonly Column<CostLine>[] = [
  {
    id: 'id',
    label: 'Sandbox',
    width: '2fr',
    cell: ({ sandboxId, life }) =>
      life?.name == null ? (
        <span class="mono">{sandboxId}</span>
      ) : (
        <>
          <b>
            <GuestText text={life.name} />
          </b>{' '}
          <span class="soft mono">{sandboxId}</span>
        </>
      ),
  },
  {
    id: 'image',
    label: 'Image',
    width: '1.3fr',
    cell: ({ image }) => <span title={image}>{formatImage(image)}</span>,
  },
  {
    id: 'size',
    label: 'Size',
    width: '9rem',
    isMinor: true,
    cell: ({ vcpus, memMiB }) => `${formatNumber(vcpus)} CPU · ${formatMiB(memMiB)}`,
  },
  {
    id: 'labels',
    label: 'Labels',
    width: '1fr',
    isMinor: true,
    cell: ({ life }) => (life === undefined ? null : <Labels labels={life.labels} />),
  },
  {
    id: 'billed',
    label: 'Billed',
    width: '7rem',
    align: 'end',
    isMinor: true,
    cell: ({ billedMs }) => formatDuration(billedMs),
  },
  {
    id: 'cost',
    label: 'Cost',
    width: '7rem',
    align: 'end',
    cell: ({ units }) => formatCents(costCents(units)),
  },
];

const ORDERS: readonly (readonly [LineOrder, string])[] = [
  ['cost', 'By cost'],
  ['billed', 'By time'],
  ['id', 'By id'],
];

/** The line of each sandbox. */
export function StatementTable({ lines }: { lines: readonly CostLine[] }) {
  const order = useSignal<LineOrder>('cost');
  const sorted = useMemo(() => sortLines(lines, order.value), [lines, order.value]);
  return (
    <Card
      title={`By sandbox (${formatNumber(lines.length)})`}
      actions={
        <Segments label="Order" options={ORDERS} value={order.value} onValue={(id) => (order.value = id)} />
      }
    >
      <DataTable
        label="Cost by sandbox"
        columns={COLUMNS}
        rows={sorted}
        rowId={({ sandboxId }) => sandboxId}
        href={({ sandboxId }) => `/sandboxes/${sandboxId}`}
      />
    </Card>
  );
}
