import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import type { DiskInfo, DiskSnapshotInfo } from '../../../../sdk/src/index.ts';
import { Button } from '../../ui/Button.tsx';
import { formatNumber } from '../../ui/format.ts';
import { Icon } from '../../ui/Icon.tsx';
import { Menu } from '../../ui/Menu.tsx';
import { Card } from '../../ui/Page.tsx';
import { Ago } from '../../ui/Time.tsx';
import { DeleteSnapshot, ForkDisk } from './disk-dialogs.tsx';
import { ExportDisk } from './ExportDisk.tsx';

interface SnapshotsProps {
  disk: DiskInfo;
  snapshots: readonly DiskSnapshotInfo[];
  onNew: () => void;
  onChange: () => void;
}

interface Chosen {
  action: 'fork' | 'export' | 'delete';
  snapshot: string;
}

export function DiskSnapshots({ disk, snapshots, onNew, onChange }: SnapshotsProps) {
  const { route } = useLocation();
  const chosen = useSignal<Chosen | undefined>(undefined);
  const close = (): void => void (chosen.value = undefined);
  const { action, snapshot = '' } = chosen.value ?? {};
  return (
    <Card
      title="Snapshots"
      actions={
        <Button icon="plus" kind="quiet" onClick={onNew}>
          New
        </Button>
      }
    >
      {snapshots.length === 0 ? (
        <p class="soft">None. A snapshot keeps the disk as it is at one moment, and copies no data.</p>
      ) : (
        <ul class="lines">
          {snapshots.map((entry) => (
            <SnapshotLine key={entry.name} snapshot={entry} onChoose={(choice) => (chosen.value = choice)} />
          ))}
        </ul>
      )}
      {action === 'fork' && (
        <ForkDisk
          disk={disk}
          snapshots={snapshots}
          from={snapshot}
          onClose={close}
          onDone={(name) => route(`/disks/${encodeURIComponent(name)}`)}
        />
      )}
      {action === 'export' && <ExportDisk disk={disk.name} snapshot={snapshot} onClose={close} />}
      {action === 'delete' && (
        <DeleteSnapshot disk={disk.name} snapshot={snapshot} onClose={close} onDone={onChange} />
      )}
    </Card>
  );
}

function SnapshotLine({
  snapshot: { name, sizeGb, version, createdAt },
  onChoose,
}: {
  snapshot: DiskSnapshotInfo;
  onChoose: (chosen: Chosen) => void;
}) {
  const item = (action: Chosen['action']) => () => onChoose({ action, snapshot: name });
  return (
    <li class="line">
      <span class="line-main">
        <b>{name}</b>
        <span class="soft">
          <Ago at={createdAt} /> · {formatNumber(sizeGb)} GB · version {formatNumber(version)}
        </span>
      </span>
      <Menu
        label={`Actions for snapshot ${name}`}
        button={<Icon name="more" />}
        items={[
          { label: 'Fork', icon: 'fork', onSelect: item('fork') },
          { label: 'Export', icon: 'download', onSelect: item('export') },
          { label: 'Delete', icon: 'trash', kind: 'danger', onSelect: item('delete') },
        ]}
      />
    </li>
  );
}
