import { useSignal } from '@preact/signals';
import type { DiskInfo } from '../../../../sdk/src/index.ts';
import { useResource } from '../../service/resource.ts';
import { client } from '../../service/session.ts';
import '../../styles/resources.css';
import { Button } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { formatBytes, formatNumber } from '../../ui/format.ts';
import { Page } from '../../ui/Page.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { CreateDisk } from './CreateDisk.tsx';
import { LIST_DISKS } from './disk-calls.ts';
import { DiskStatus, SandboxLink } from './DiskStatus.tsx';
import { ImportDisk } from './ImportDisk.tsx';

const COLUMNS: readonly Column<DiskInfo>[] = [
  { id: 'name', label: 'Disk', width: '1.6fr', cell: ({ name }) => <b>{name}</b> },
  { id: 'status', label: 'Status', width: '8rem', cell: (disk) => <DiskStatus disk={disk} /> },
  {
    id: 'attached',
    label: 'Sandbox',
    width: '1.3fr',
    cell: ({ attachedTo }) => <SandboxLink id={attachedTo} />,
  },
  {
    id: 'size',
    label: 'Size',
    width: '6rem',
    align: 'end',
    cell: ({ sizeGb }) => `${formatNumber(sizeGb)} GB`,
  },
  {
    id: 'stored',
    label: 'Stored',
    width: '7rem',
    align: 'end',
    isMinor: true,
    cell: ({ storedBytes }) => formatBytes(storedBytes),
  },
  {
    id: 'parent',
    label: 'Fork of',
    isMinor: true,
    cell: ({ parent }) => (parent === null ? <span class="soft">–</span> : parent),
  },
  {
    id: 'durability',
    label: 'Durability',
    width: '7rem',
    isMinor: true,
    cell: ({ durability }) => durability,
  },
  {
    id: 'age',
    label: 'Created',
    width: '7rem',
    align: 'end',
    isMinor: true,
    cell: ({ createdAt }) => <Ago at={createdAt} />,
  },
];

/** `/disks` */
export function Disks() {
  const current = client.value;
  const dialog = useSignal<'create' | 'import' | undefined>(undefined);
  const resource = useResource(async (signal) => (await current?.listDisks({ signal })) ?? [], [current], {
    concerns: ({ type }) => type.startsWith('disk.'),
  });
  const close = (): void => void (dialog.value = undefined);
  return (
    <Page
      title="Disks"
      lead="A disk outlives its sandbox: the data at /workspace is kept in the object store."
      actions={
        <>
          <CopyAsCode {...LIST_DISKS} />
          <Button icon="upload" onClick={() => (dialog.value = 'import')}>
            Import
          </Button>
          <Button icon="plus" kind="primary" onClick={() => (dialog.value = 'create')}>
            New disk
          </Button>
        </>
      }
    >
      <Loaded resource={resource} rows={5}>
        {(disks) => <DiskTable disks={disks} onCreate={() => (dialog.value = 'create')} />}
      </Loaded>
      {dialog.value === 'create' && <CreateDisk onClose={close} onDone={resource.reload} />}
      {dialog.value === 'import' && <ImportDisk onClose={close} onDone={resource.reload} />}
    </Page>
  );
}

function DiskTable({ disks, onCreate }: { disks: readonly DiskInfo[]; onCreate: () => void }) {
  if (disks.length === 0)
    return (
      <Empty
        icon="disk"
        title="There is no disk yet"
        action={
          <Button kind="primary" icon="plus" onClick={onCreate}>
            Create the first one
          </Button>
        }
      >
        Any later sandbox can mount a disk, fork it from a snapshot, or continue where the last one ended.
      </Empty>
    );
  return (
    <DataTable
      label="Disks"
      columns={COLUMNS}
      rows={disks}
      rowId={({ name }) => name}
      href={({ name }) => `/disks/${encodeURIComponent(name)}`}
    />
  );
}
