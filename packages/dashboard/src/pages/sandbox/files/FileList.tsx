import type { FileEntry } from '../../../../../sdk/src/index.ts';
import { DataTable, type Column } from '../../../ui/DataTable.tsx';
import { formatBytes, formatMoment } from '../../../ui/format.ts';
import { GuestText } from '../../../ui/GuestText.tsx';
import { Icon, type IconName } from '../../../ui/Icon.tsx';
import { Menu, type MenuItem } from '../../../ui/Menu.tsx';
import { showHidden } from '../../../ui/visible-text.ts';
import { addressOf } from './addresses.ts';
import { describeMode } from './file-mode.ts';

/** What can be done with an entry. */
export interface EntryActions {
  download: (entry: FileEntry) => void;
  archive: (entry: FileEntry) => void;
  move: (entry: FileEntry) => void;
  changeMode: (entry: FileEntry) => void;
  remove: (entry: FileEntry) => void;
}

interface FileListProps {
  sandboxId: string;
  directory: string;
  entries: readonly FileEntry[];
  actions: EntryActions;
}

export function FileList({ sandboxId, directory, entries, actions }: FileListProps) {
  return (
    <div class="files-list" onKeyDown={moveFocus}>
      <DataTable
        label="Files"
        columns={columnsOf(actions)}
        rows={entries}
        rowId={({ name }) => name}
        href={({ type, path, name }) =>
          type === 'dir' ? addressOf(sandboxId, path) : addressOf(sandboxId, directory, name)
        }
      />
    </div>
  );
}

function columnsOf(actions: EntryActions): readonly Column<FileEntry>[] {
  return [
    { id: 'name', label: 'Name', width: '1fr', cell: (entry) => <Name entry={entry} /> },
    {
      id: 'size',
      label: 'Size',
      width: '6rem',
      align: 'end',
      cell: ({ type, size }) => (type === 'file' ? formatBytes(size) : <span class="soft">–</span>),
    },
    {
      id: 'mtime',
      label: 'Changed',
      width: '13rem',
      cell: ({ mtime }) => (
        <time class="soft" dateTime={mtime}>
          {formatMoment(mtime)}
        </time>
      ),
    },
    {
      id: 'mode',
      label: 'Mode',
      width: '6.5rem',
      isMinor: true,
      cell: ({ mode, type }) => (
        <span class="mono soft" title={mode}>
          {describeMode(mode, type)}
        </span>
      ),
    },
    {
      id: 'actions',
      label: 'More',
      width: '2.8rem',
      align: 'end',
      cell: (entry) => (
        <Menu
          label={`Actions for ${showHidden(entry.name)}`}
          button={<Icon name="more" />}
          items={itemsOf(entry, actions)}
        />
      ),
    },
  ];
}

const ICONS: Readonly<Record<FileEntry['type'], IconName>> = {
  dir: 'folder',
  file: 'file',
  symlink: 'external',
  other: 'box',
};

function Name({ entry: { name, type, target } }: { entry: FileEntry }) {
  return (
    <span class={`file-name ${type}`} title={showHidden(name)}>
      <Icon name={ICONS[type]} size={17} />
      <GuestText text={name} />
      {target !== null && (
        <span class="soft">
          {' → '}
          <GuestText text={target} />
        </span>
      )}
    </span>
  );
}

function itemsOf(entry: FileEntry, actions: EntryActions): readonly MenuItem[] {
  const { type } = entry;
  return [
    ...(type === 'file' || type === 'symlink'
      ? [{ label: 'Download', icon: 'download', onSelect: () => actions.download(entry) } as const]
      : []),
    ...(type === 'dir'
      ? [{ label: 'Download', icon: 'download', onSelect: () => actions.archive(entry) } as const]
      : []),
    { label: 'Rename or move', icon: 'arrowLeft', onSelect: () => actions.move(entry) },
    ...(type === 'symlink'
      ? []
      : [{ label: 'Change mode', icon: 'lock', onSelect: () => actions.changeMode(entry) } as const]),
    { label: 'Delete', icon: 'trash', kind: 'danger', onSelect: () => actions.remove(entry) },
  ];
}

/** Arrow keys walk through the names. Tab leads to the actions of a row. */
function moveFocus(event: KeyboardEvent): void {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const { target, currentTarget } = event;
  if (step === undefined || !(target instanceof HTMLElement) || !target.matches('.row-link')) return;
  const links = Array.from((currentTarget as HTMLElement).querySelectorAll<HTMLElement>('.row-link'));
  const next = links[links.indexOf(target) + step];
  if (next === undefined) return;
  event.preventDefault();
  next.focus({ preventScroll: true });
  next.closest('.table-row')?.scrollIntoView({ block: 'nearest' });
}
