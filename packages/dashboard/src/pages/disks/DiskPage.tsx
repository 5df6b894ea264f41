import { useSignal } from '@preact/signals';
import { useLocation, useRoute } from 'preact-iso';
import type { DiskInfo, DiskSnapshotInfo } from '../../../../sdk/src/index.ts';
import { useResource } from '../../service/resource.ts';
import { client } from '../../service/session.ts';
import { Button, ButtonLink } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { formatBytes, formatMoment, formatNumber } from '../../ui/format.ts';
import { Icon } from '../../ui/Icon.tsx';
import { Menu } from '../../ui/Menu.tsx';
import { Card, Facts, Page } from '../../ui/Page.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import '../../styles/resources.css';
import { Ago } from '../../ui/Time.tsx';
import { getDiskCall } from './disk-calls.ts';
import { DeleteDisk, FlushDisk, ForkDisk, GrowDisk, SnapshotDisk } from './disk-dialogs.tsx';
import { buildLineage } from './disk-lineage.ts';
import { DiskLineage } from './DiskLineage.tsx';
import { DiskSnapshots } from './DiskSnapshots.tsx';
import { DiskStatus, SandboxLink } from './DiskStatus.tsx';
import { ExportDisk } from './ExportDisk.tsx';

interface Read {
  disk: DiskInfo;
  snapshots: readonly DiskSnapshotInfo[];
  disks: readonly DiskInfo[];
}

type DialogName = 'grow' | 'flush' | 'export' | 'delete' | 'snapshot' | 'fork';

/** `/disks/:name` */
export function DiskPage() {
  const { name = '' } = useRoute().params;
  const current = client.value;
  const resource = useResource<Read | null>(
    async (signal) => {
      const disk = (await current?.getDisk(name, { signal })) ?? null;
      if (current === undefined || disk === null) return null;
      const [snapshots, disks] = await Promise.all([
        current.listDiskSnapshots(name, { signal }),
        current.listDisks({ signal }),
      ]);
      return { disk, snapshots, disks };
    },
    [current, name],
    { concerns: ({ type }) => type.startsWith('disk.') },
  );
  return (
    <Loaded resource={resource} rows={6}>
      {(read) => (read === null ? <Missing name={name} /> : <Found read={read} reload={resource.reload} />)}
    </Loaded>
  );
}

function Found({ read, reload }: { read: Read; reload: () => void }) {
  const { disk, snapshots, disks } = read;
  const { route } = useLocation();
  const dialog = useSignal<DialogName | undefined>(undefined);
  const show = (name: DialogName) => () => void (dialog.value = name);
  const close = (): void => void (dialog.value = undefined);
  const props = { disk, onClose: close, onDone: reload };
  const openFork = (name: string): void => route(`/disks/${encodeURIComponent(name)}`);
  return (
    <Page
      title={disk.name}
      lead={
        <>
          <a href="/disks">Disks</a>
          <DiskStatus disk={disk} />
        </>
      }
      actions={<DiskActions disk={disk} show={show} />}
    >
      <DiskFacts disk={disk} />
      <div class="columns">
        <DiskSnapshots disk={disk} snapshots={snapshots} onNew={show('snapshot')} onChange={reload} />
        <Card title="Forks">
          <DiskLineage tree={buildLineage(disks, disk.name)} current={disk.name} />
        </Card>
      </div>
      {dialog.value === 'grow' && <GrowDisk {...props} />}
      {dialog.value === 'flush' && <FlushDisk {...props} />}
      {dialog.value === 'export' && <ExportDisk disk={disk.name} onClose={close} />}
      {dialog.value === 'snapshot' && <SnapshotDisk {...props} />}
      {dialog.value === 'fork' && <ForkDisk {...props} snapshots={snapshots} onDone={openFork} />}
      {dialog.value === 'delete' && (
        <DeleteDisk {...props} snapshots={snapshots.length} onDone={() => route('/disks')} />
      )}
    </Page>
  );
}

function DiskActions({ disk, show }: { disk: DiskInfo; show: (name: DialogName) => () => void }) {
  return (
    <>
      <CopyAsCode {...getDiskCall(disk.name)} />
      {disk.status === 'available' && (
        <ButtonLink href={`/sandboxes/new?disk=${encodeURIComponent(disk.name)}`} icon="terminal">
          New sandbox
        </ButtonLink>
      )}
      <Button icon="snapshot" onClick={show('snapshot')}>
        Snapshot
      </Button>
      <Button icon="fork" onClick={show('fork')}>
        Fork
      </Button>
      <Menu
        label="More actions"
        button={<Icon name="more" />}
        items={[
          { label: 'Grow', icon: 'plus', onSelect: show('grow') },
          { label: 'Flush', icon: 'check', onSelect: show('flush') },
          { label: 'Export', icon: 'download', onSelect: show('export') },
          { label: 'Delete', icon: 'trash', kind: 'danger', onSelect: show('delete') },
        ]}
      />
    </>
  );
}

function DiskFacts({ disk }: { disk: DiskInfo }) {
  const { dirtyBytes, waitsFor, parent } = disk;
  return (
    <Card>
      <Facts
        facts={[
          ['Sandbox', <SandboxLink id={disk.attachedTo} />],
          ['Size', `${formatNumber(disk.sizeGb)} GB`],
          [
            'Stored',
            <span title="Bytes that only this disk and its snapshots use, as billed. Measured every hour.">
              {formatBytes(disk.storedBytes)}
            </span>,
          ],
          [
            'Newest stored version',
            <>
              {formatNumber(disk.drainedVersion)}, <Ago at={disk.drainedAt} />
            </>,
          ],
          ['Not stored yet', dirtyBytes === 0 ? 'nothing' : formatBytes(dirtyBytes)],
          ['Durability', disk.durability === 'local' ? 'local: on the disk of the host' : disk.durability],
          [
            'Forked from',
            parent === null ? '–' : <a href={`/disks/${encodeURIComponent(parent)}`}>{parent}</a>,
          ],
          ['Created', formatMoment(disk.createdAt)],
        ]}
      />
      {waitsFor !== null && (
        <p class="note warn" role="status">
          Storing does not proceed: {waitsFor}
        </p>
      )}
    </Card>
  );
}

function Missing({ name }: { name: string }) {
  return (
    <Page title="Not found">
      <Empty
        icon="disk"
        title="There is no such disk"
        action={
          <ButtonLink href="/disks" kind="primary">
            To the disks
          </ButtonLink>
        }
      >
        No disk that you can see has the name {name}. It may have been deleted, or belong to another team.
      </Empty>
    </Page>
  );
}
