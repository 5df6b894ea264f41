import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import type { Coppice, SnapshotInfo } from '../../../../sdk/src/index.ts';
import { useResource } from '../../service/resource.ts';
import { sandboxes } from '../../service/sandboxes.ts';
import { client as currentClient } from '../../service/session.ts';
import { ButtonLink } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { formatBytes, formatMiB, formatNumber, formatImage } from '../../ui/format.ts';
import { GuestText } from '../../ui/GuestText.tsx';
import { Icon } from '../../ui/Icon.tsx';
import { Menu } from '../../ui/Menu.tsx';
import { Page } from '../../ui/Page.tsx';
import { SearchField } from '../../ui/SearchField.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { filterSnapshots } from './filter-snapshots.ts';
import { DeleteSnapshot, EditSnapshot, RestoreSnapshot, titleOf } from './SnapshotDialogs.tsx';

type SnapshotAction = 'restore' | 'edit' | 'delete';

interface Opened {
  action: SnapshotAction;
  snapshot: SnapshotInfo;
}

/** `/snapshots` */
export function Snapshots() {
  const client = currentClient.value;
  const resource = useResource(async (signal) => (await client?.snapshots.list({ signal })) ?? [], [client], {
    concerns: ({ type }) => type.startsWith('snapshot.'),
  });
  const opened = useSignal<Opened | undefined>(undefined);
  return (
    <Page
      title="Snapshots"
      lead="Saved sandboxes: memory, processes and files. They are not billed."
      actions={
        <CopyAsCode
          method="GET"
          path="/v1/snapshots"
          typescript="for await (const { id, name, sizeBytes } of client.snapshots.list()) console.log(id, name, sizeBytes);"
          python={
            'for snapshot in client.snapshots.list():\n    print(snapshot.id, snapshot.name, snapshot.size_bytes)'
          }
        />
      }
    >
      <Loaded resource={resource} rows={6}>
        {(snapshots) =>
          snapshots.length === 0 ? (
            <NoSnapshots />
          ) : (
            <Listed
              snapshots={snapshots}
              onAction={(action, snapshot) => (opened.value = { action, snapshot })}
            />
          )
        }
      </Loaded>
      {client !== undefined && opened.value !== undefined && (
        <OpenDialog
          client={client}
          {...opened.value}
          onDone={resource.reload}
          onClose={() => (opened.value = undefined)}
        />
      )}
    </Page>
  );
}

function OpenDialog({
  action,
  onDone,
  ...props
}: Opened & { client: Coppice; onDone: () => void; onClose: () => void }) {
  if (action === 'restore') return <RestoreSnapshot {...props} />;
  if (action === 'edit') return <EditSnapshot {...props} onDone={onDone} />;
  return <DeleteSnapshot {...props} onDone={onDone} />;
}

function NoSnapshots() {
  return (
    <Empty
      icon="snapshot"
      title="There are no snapshots"
      action={<ButtonLink href="/sandboxes">To the sandboxes</ButtonLink>}
    >
      Take one on the lineage page of a running sandbox, to restore it later or to roll the sandbox back.
      Hibernated sandboxes are not snapshots: they are in the list of sandboxes.
    </Empty>
  );
}

interface ListedProps {
  snapshots: readonly SnapshotInfo[];
  onAction: (action: SnapshotAction, snapshot: SnapshotInfo) => void;
}

function Listed({ snapshots, onAction }: ListedProps) {
  const { query } = useLocation();
  const search = useSignal(query['q'] ?? '');
  const shown = filterSnapshots(snapshots, search.value);
  const bytes = shown.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  return (
    <>
      <div class="filters">
        <SearchField
          label="Search snapshots"
          placeholder="Search by name, id, sandbox or image"
          value={search.value}
          onValue={(value) => (search.value = value)}
        />
        <span class="soft" role="status" title="Data that snapshots share counts for each of them.">
          {formatNumber(shown.length)} {shown.length === 1 ? 'snapshot' : 'snapshots'}, {formatBytes(bytes)}
        </span>
      </div>
      {shown.length === 0 ? (
        <Empty icon="search" title="No snapshot matches">
          Change the search.
        </Empty>
      ) : (
        <DataTable
          label="Snapshots"
          columns={columnsOf(onAction)}
          rows={shown}
          rowId={({ id }) => id}
          href={({ runId }) => `/sandboxes/${runId}/lineage`}
        />
      )}
    </>
  );
}

function columnsOf(onAction: ListedProps['onAction']): readonly Column<SnapshotInfo>[] {
  return [
    {
      id: 'name',
      label: 'Snapshot',
      width: '2.4fr',
      cell: ({ id, name }) => (
        <>
          <b>
            <GuestText text={name ?? id} />
          </b>
          {name !== null && <span class="soft mono"> {id}</span>}
        </>
      ),
    },
    { id: 'sandbox', label: 'Taken of', width: '1.3fr', cell: ({ runId }) => <SandboxName id={runId} /> },
    {
      id: 'image',
      label: 'Image',
      width: '1.2fr',
      isMinor: true,
      cell: ({ image, vcpus, memMiB }) => (
        <span title={`${image}, ${vcpus} CPU, ${formatMiB(memMiB)}`}>{formatImage(image)}</span>
      ),
    },
    {
      id: 'size',
      label: 'Size',
      width: '6rem',
      align: 'end',
      cell: ({ sizeBytes }) => formatBytes(sizeBytes),
    },
    {
      id: 'created',
      label: 'Created',
      width: '6.5rem',
      align: 'end',
      isMinor: true,
      cell: ({ createdAt }) => <Ago at={createdAt} />,
    },
    {
      id: 'expires',
      label: 'Expires',
      width: '6rem',
      align: 'end',
      isMinor: true,
      cell: ({ expiresAt }) =>
        expiresAt === null ? <span class="soft">never</span> : <Ago at={expiresAt} />,
    },
    {
      id: 'actions',
      label: 'Actions',
      isAction: true,
      width: '3rem',
      align: 'end',
      cell: (snapshot) => <Actions snapshot={snapshot} onAction={onAction} />,
    },
  ];
}

function SandboxName({ id }: { id: string }) {
  const sandbox = sandboxes.value?.find((one) => one.id === id);
  return sandbox?.name == null ? <span class="mono">{id}</span> : <GuestText text={sandbox.name} />;
}

function Actions({ snapshot, onAction }: { snapshot: SnapshotInfo; onAction: ListedProps['onAction'] }) {
  return (
    <Menu
      label={`Actions on ${titleOf(snapshot)}`}
      button={<Icon name="more" />}
      items={[
        { label: 'Restore as new sandbox', icon: 'plus', onSelect: () => onAction('restore', snapshot) },
        { label: 'Name and expiry', icon: 'settings', onSelect: () => onAction('edit', snapshot) },
        { label: 'Delete', icon: 'trash', kind: 'danger', onSelect: () => onAction('delete', snapshot) },
      ]}
    />
  );
}
