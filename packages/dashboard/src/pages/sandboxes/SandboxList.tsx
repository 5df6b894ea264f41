import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import type { SandboxInfo } from '../../../../sdk/src/index.ts';
import { reloadSandboxes, sandboxes, sandboxesError } from '../../service/sandboxes.ts';
import { Labels, StateBadge } from '../../ui/Badge.tsx';
import { ButtonLink } from '../../ui/Button.tsx';
import { Cost } from '../../ui/Cost.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { formatImage, formatMiB, formatNumber } from '../../ui/format.ts';
import { Page } from '../../ui/Page.tsx';
import { Empty, Failure, Skeleton } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { filterSandboxes, STATE_FILTERS, type StateFilter } from './filter-sandboxes.ts';
import { SearchField } from '../../ui/SearchField.tsx';
import { Segments, toOptions } from '../../ui/Segments.tsx';

const COLUMNS: readonly Column<SandboxInfo>[] = [
  {
    id: 'name',
    label: 'Sandbox',
    width: '2fr',
    cell: ({ id, name }) => (
      <>
        <b>{name ?? id}</b>
        {name !== null && <span class="soft mono"> {id}</span>}
      </>
    ),
  },
  { id: 'state', label: 'State', width: '8rem', cell: (sandbox) => <StateBadge {...sandbox} /> },
  {
    id: 'image',
    label: 'Image',
    width: '1.4fr',
    cell: ({ image }) => (
      <span class="mono" title={image}>
        {formatImage(image)}
      </span>
    ),
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
    width: '1.4fr',
    isMinor: true,
    cell: ({ labels }) => <Labels labels={labels} />,
  },
  {
    id: 'cost',
    label: 'Cost',
    width: '6rem',
    align: 'end',
    cell: (sandbox) => <Cost sandbox={sandbox} />,
  },
  {
    id: 'age',
    label: 'Created',
    width: '7rem',
    align: 'end',
    cell: ({ createdAt }) => <Ago at={createdAt} />,
  },
];

export function SandboxList() {
  const list = sandboxes.value;
  const error = sandboxesError.value;
  return (
    <Page
      title="Sandboxes"
      actions={
        <>
          <CopyAsCode
            method="GET"
            path="/v1/runs"
            typescript={
              'for await (const { id, status } of client.sandboxes.list()) console.log(id, status);'
            }
            python={'for sandbox in client.sandboxes.list():\n    print(sandbox.id, sandbox.status)'}
          />
          <ButtonLink href="/history" kind="quiet" icon="archive">
            Ended sandboxes
          </ButtonLink>
          <ButtonLink href="/sandboxes/new" kind="primary" icon="plus">
            New sandbox
          </ButtonLink>
        </>
      }
    >
      {error !== undefined && <Failure error={error} onRetry={reloadSandboxes} />}
      {list === undefined ? error === undefined && <Skeleton rows={8} /> : <Listed sandboxes={list} />}
    </Page>
  );
}

function Listed({ sandboxes: all }: { sandboxes: readonly SandboxInfo[] }) {
  const { query } = useLocation();
  const search = useSignal(query['q'] ?? '');
  const state = useSignal<StateFilter>('all');
  if (all.length === 0)
    return (
      <Empty
        icon="terminal"
        title="No sandbox is running"
        action={
          <ButtonLink href="/sandboxes/new" kind="primary" icon="plus">
            Create the first one
          </ButtonLink>
        }
      >
        A sandbox is a small Linux machine of its own. It boots from any image in seconds.
      </Empty>
    );
  const shown = filterSandboxes(all, { search: search.value, state: state.value });
  return (
    <>
      <div class="filters">
        <SearchField
          label="Search sandboxes"
          placeholder="Search by name, id, image or label"
          value={search.value}
          onValue={(value) => (search.value = value)}
        />
        <Segments
          label="State"
          options={toOptions(STATE_FILTERS)}
          value={state.value}
          onValue={(filter) => (state.value = filter)}
        />
        <span class="soft" role="status">
          {countShown(shown.length, all.length)}
        </span>
      </div>
      {shown.length === 0 ? (
        <Empty icon="search" title="No sandbox matches">
          Change the search or the state.
        </Empty>
      ) : (
        <DataTable
          label="Sandboxes"
          columns={COLUMNS}
          rows={shown}
          rowId={({ id }) => id}
          href={({ id }) => `/sandboxes/${id}`}
        />
      )}
    </>
  );
}

function countShown(shown: number, all: number): string {
  const total = `${formatNumber(all)} ${all === 1 ? 'sandbox' : 'sandboxes'}`;
  return shown === all ? total : `${formatNumber(shown)} of ${total}`;
}
