import { useSignal } from '@preact/signals';
import type { HistoryEntry } from '../../../../sdk/src/index.ts';
import { client } from '../../service/session.ts';
import { Labels, StateBadge } from '../../ui/Badge.tsx';
import { Button, ButtonLink } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import {
  formatBytes,
  formatCents,
  formatDuration,
  formatMiB,
  formatNumber,
  formatImage,
} from '../../ui/format.ts';
import { Page } from '../../ui/Page.tsx';
import { toLiteral, toPython } from '../../ui/snippets.ts';
import { Empty, Failure, Skeleton } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { sumCosts } from '../usage/sum-costs.ts';
import { describeReason } from './end-reason.ts';
import { parseLabelFilter } from './label-filter.ts';
import { useHistory, type HistoryFilter, type HistoryList } from './use-history.ts';
import { SearchField } from '../../ui/SearchField.tsx';
import { Segments, toOptions } from '../../ui/Segments.tsx';

const COLUMNS: readonly Column<HistoryEntry>[] = [
  { id: 'id', label: 'Sandbox', width: '12.5rem', cell: ({ id }) => <span class="mono">{id}</span> },
  { id: 'state', label: 'State', width: '7rem', cell: ({ status }) => <StateBadge status={status} /> },
  { id: 'reason', label: 'Reason', width: '1.2fr', cell: ({ statusReason }) => <Reason of={statusReason} /> },
  {
    id: 'image',
    label: 'Image',
    width: '1.1fr',
    isMinor: true,
    cell: ({ image, vcpus, memMiB }) => (
      <span title={`${image}, ${vcpus} CPU, ${formatMiB(memMiB)}`}>{formatImage(image)}</span>
    ),
  },
  {
    id: 'labels',
    label: 'Labels',
    width: '1fr',
    isMinor: true,
    cell: ({ labels }) => <Labels labels={labels} />,
  },
  {
    id: 'duration',
    label: 'Lived',
    width: '7rem',
    align: 'end',
    isMinor: true,
    cell: ({ uptimeMs, billedMs, cpuMs, memPeakBytes }) => (
      <span
        title={`Billed ${formatDuration(billedMs)}, CPU time ${formatDuration(cpuMs)}, peak memory ${formatBytes(memPeakBytes)}`}
      >
        {formatDuration(uptimeMs)}
      </span>
    ),
  },
  {
    id: 'cost',
    label: 'Cost',
    width: '6rem',
    align: 'end',
    cell: ({ costCents }) => formatCents(costCents),
  },
  {
    id: 'ended',
    label: 'Ended',
    width: '6rem',
    align: 'end',
    cell: ({ destroyedAt }) => <Ago at={destroyedAt} />,
  },
];

function Reason({ of }: { of: string | null }) {
  const text = describeReason(of);
  return <span title={text}>{text}</span>;
}

/** `/history` */
export function History() {
  const status = useSignal<HistoryFilter['status']>('all');
  const labelText = useSignal('');
  const labels = parseLabelFilter(labelText.value);
  const history = useHistory(client.value, { status: status.value, labels: labels ?? {} });
  return (
    <Page
      title="Ended sandboxes"
      lead={<a href="/sandboxes">Sandboxes that exist</a>}
      actions={<HistoryCode labels={labels ?? {}} />}
    >
      <div class="filters">
        <SearchField
          label="Filter by labels"
          placeholder="Filter by labels, for example job=nightly"
          isInvalid={labels === undefined}
          value={labelText.value}
          onValue={(value) => (labelText.value = value)}
        />
        <Segments
          label="State"
          options={toOptions(['all', 'destroyed', 'failed'] as const)}
          value={status.value}
          onValue={(one) => (status.value = one)}
        />
        {labels === undefined && (
          <span class="fault" role="status">
            Write labels as name=value, with spaces between them; at most 8.
          </span>
        )}
      </div>
      {history === undefined ? (
        <Empty icon="people" title="You are in no team">
          An owner of the organization can add you to one.
        </Empty>
      ) : (
        <HistoryPart history={history} isFiltered={status.value !== 'all' || labelText.value !== ''} />
      )}
    </Page>
  );
}

function HistoryPart({ history, isFiltered }: { history: HistoryList; isFiltered: boolean }) {
  const entries = history.entries.value;
  const error = history.error.value;
  const reload = (): void => void history.reload();
  if (entries === undefined)
    return error === undefined ? <Skeleton rows={8} /> : <Failure error={error} onRetry={reload} />;
  return (
    <>
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {entries.length === 0 ? (
        <NoHistory isFiltered={isFiltered} />
      ) : (
        <>
          <DataTable
            label="Ended sandboxes"
            columns={COLUMNS}
            rows={entries}
            rowId={({ id }) => id}
            href={({ id }) => `/sandboxes/${id}`}
          />
          <div class="row">
            <span class="soft" role="status">
              {formatNumber(entries.length)} shown, {formatCents(sumCosts(entries))} together
            </span>
            <span class="gap" />
            {history.hasMore.value && (
              <Button isBusy={history.isLoading.value} onClick={() => void history.loadMore()}>
                Load more
              </Button>
            )}
          </div>
        </>
      )}
    </>
  );
}

function NoHistory({ isFiltered }: { isFiltered: boolean }) {
  if (isFiltered)
    return (
      <Empty icon="search" title="No ended sandbox matches">
        Change the labels or the state.
      </Empty>
    );
  return (
    <Empty
      icon="archive"
      title="No sandbox has ended yet"
      action={<ButtonLink href="/sandboxes">To the sandboxes</ButtonLink>}
    >
      Sandboxes appear here when they are destroyed or fail, with the reason and the cost. Creates that never
      ran cost nothing and are left out.
    </Empty>
  );
}

function HistoryCode({ labels }: { labels: Readonly<Record<string, string>> }) {
  const query = Object.entries(labels).map(
    ([name, value]) => `label=${encodeURIComponent(`${name}:${value}`)}`,
  );
  const isPlain = query.length === 0;
  return (
    <CopyAsCode
      method="GET"
      path={`/v1/runs/history${isPlain ? '' : `?${query.join('&')}`}`}
      typescript={`for await (const { id, costCents } of client.history(${isPlain ? '' : toLiteral({ labels })})) console.log(id, costCents);`}
      python={`for entry in client.history(${isPlain ? '' : `labels=${toPython(labels)}`}):\n    print(entry.id, entry.cost_cents)`}
    />
  );
}
