import { useComputed, useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { FileEntry, Sandbox } from '../../../../../sdk/src/index.ts';
import { Button, ButtonLink } from '../../../ui/Button.tsx';
import { formatNumber } from '../../../ui/format.ts';
import { GuestText } from '../../../ui/GuestText.tsx';
import { Icon } from '../../../ui/Icon.tsx';
import { Empty, Failure, Skeleton } from '../../../ui/states.tsx';
import { showFailure } from '../../../ui/toasts.tsx';
import { addressOf } from './addresses.ts';
import { ArchiveDialog } from './ArchiveDialog.tsx';
import { ModeDialog, MoveDialog, NewFolderDialog, RemoveDialog } from './FileDialogs.tsx';
import { FileList, type EntryActions } from './FileList.tsx';
import { FileView } from './FileView.tsx';
import { FILE_ORDERS, orderFiles, type FileOrder } from './order-files.ts';
import { joinPath, listCrumbs, parentOf } from './paths.ts';
import { downloadByLink } from './send-by-link.ts';
import { DropZone, UploadButton, UploadCode, useUploader } from './UploadControls.tsx';
import { UploadProgress } from './UploadProgress.tsx';
import { batches } from './uploads.ts';
import { useDirectory, useWatch, type Directory } from './use-directory.ts';
import { SearchField } from '../../../ui/SearchField.tsx';
import { Segments, toOptions } from '../../../ui/Segments.tsx';

type OpenDialog =
  | { kind: 'folder' }
  | { kind: 'archive' | 'move' | 'mode' | 'remove'; entry: FileEntry }
  | undefined;

/** The files of a running sandbox, one directory at a time: `?path=`, and `&view=` for one of its files. */
export function FileBrowser({ sandbox }: { sandbox: Sandbox }) {
  const { query, route } = useLocation();
  const { id } = sandbox.record;
  const resource = useDirectory(sandbox, query['path']);
  const { value: directory, reload } = resource;
  const path = query['path'] ?? directory?.path;
  const isWanted = useSignal(true);
  const isLive = useWatch(sandbox, directory?.path, { isWanted: isWanted.value, reload });
  const dialog = useSignal<OpenDialog>(undefined);
  const { upload, dialog: question } = useUploader(sandbox, directory?.path);
  useReloadAfterUploads(id, reload);
  const view = query['view'];
  return (
    <DropZone upload={upload}>
      <div class="files-bar">
        <Crumbs sandboxId={id} path={path} />
        <div class="actions">
          <LiveButton
            isLive={isLive}
            isWanted={isWanted.value}
            onChange={(next) => (isWanted.value = next)}
          />
          {path !== undefined && <UploadCode sandboxId={id} directory={path} />}
          <Button
            icon="plus"
            isDisabled={directory === undefined}
            onClick={() => (dialog.value = { kind: 'folder' })}
          >
            New folder
          </Button>
          <UploadButton upload={upload} />
        </div>
      </div>
      <UploadProgress sandboxId={id} />
      <Listing sandboxId={id} path={path} resource={resource} actions={buildActions(sandbox, dialog)} />
      {question}
      <Dialogs
        sandbox={sandbox}
        open={dialog.value}
        directory={directory?.path}
        onDone={reload}
        onClose={() => (dialog.value = undefined)}
      />
      {view !== undefined && path !== undefined && (
        <FileView sandbox={sandbox} path={joinPath(path, view)} onClose={() => route(addressOf(id, path))} />
      )}
    </DropZone>
  );
}

function buildActions(sandbox: Sandbox, dialog: { value: OpenDialog }): EntryActions {
  return {
    download: ({ path, name }) => void downloadByLink(sandbox, path, name).catch(showFailure),
    archive: (entry) => (dialog.value = { kind: 'archive', entry }),
    move: (entry) => (dialog.value = { kind: 'move', entry }),
    changeMode: (entry) => (dialog.value = { kind: 'mode', entry }),
    remove: (entry) => (dialog.value = { kind: 'remove', entry }),
  };
}

interface DialogsProps {
  sandbox: Sandbox;
  open: OpenDialog;
  directory: string | undefined;
  onDone: () => void;
  onClose: () => void;
}

function Dialogs({ open, directory, ...props }: DialogsProps) {
  switch (open?.kind) {
    case 'folder':
      return directory === undefined ? null : <NewFolderDialog {...props} directory={directory} />;
    case 'archive':
      return <ArchiveDialog sandbox={props.sandbox} entry={open.entry} onClose={props.onClose} />;
    case 'move':
      return <MoveDialog {...props} entry={open.entry} />;
    case 'mode':
      return <ModeDialog {...props} entry={open.entry} />;
    case 'remove':
      return <RemoveDialog {...props} entry={open.entry} />;
    default:
      return null;
  }
}

/** Where the directory cannot be watched, the end of an upload is still seen. */
function useReloadAfterUploads(sandboxId: string, reload: () => void): void {
  // Computed apart, so that the list is not drawn again for each step of the progress.
  const running = useComputed(
    () =>
      batches.value.filter(
        (batch) => batch.sandboxId === sandboxId && batch.progress.value.state === 'running',
      ).length,
  ).value;
  const before = useRef(running);
  useEffect(() => {
    if (running < before.current) reload();
    before.current = running;
  }, [running]);
}

function Crumbs({ sandboxId, path }: { sandboxId: string; path: string | undefined }) {
  const crumbs = path === undefined ? [] : listCrumbs(path);
  return (
    <nav class="crumbs" aria-label="Directory">
      {crumbs.map(({ name, path: target }, index) => (
        <span key={target}>
          {index > 1 && <span class="soft">/</span>}
          <a
            href={addressOf(sandboxId, target)}
            aria-current={index === crumbs.length - 1 ? 'page' : undefined}
          >
            <GuestText text={name} />
          </a>
        </span>
      ))}
    </nav>
  );
}

function LiveButton({
  isLive,
  isWanted,
  onChange,
}: {
  isLive: boolean;
  isWanted: boolean;
  onChange: (isWanted: boolean) => void;
}) {
  return (
    <button
      class={`live-button${isLive ? ' on' : ''}`}
      type="button"
      aria-pressed={isWanted}
      title="Shows changes as they happen. While it is on and the page is in view, the sandbox does not count as idle."
      onClick={() => onChange(!isWanted)}
    >
      Live
    </button>
  );
}

interface ListingProps {
  sandboxId: string;
  path: string | undefined;
  resource: ReturnType<typeof useDirectory>;
  actions: EntryActions;
}

function Listing({ sandboxId, path, resource, actions }: ListingProps) {
  const { value, error, reload } = resource;
  const up = path === undefined || path === '/' ? undefined : addressOf(sandboxId, parentOf(path));
  const first = useRef(value?.path);
  first.current ??= value?.path;
  return (
    <>
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {value !== undefined ? (
        <Entries
          key={value.path}
          sandboxId={sandboxId}
          directory={value}
          up={up}
          isEntered={value.path !== first.current}
          actions={actions}
        />
      ) : error === undefined ? (
        <Skeleton rows={8} />
      ) : (
        <UpLink href={up}>To the folder above</UpLink>
      )}
    </>
  );
}

function UpLink({ href, children }: { href: string | undefined; children: string }) {
  return href === undefined ? null : (
    <div class="row">
      <ButtonLink href={href} icon="arrowLeft">
        {children}
      </ButtonLink>
    </div>
  );
}

interface EntriesProps {
  sandboxId: string;
  directory: Directory;
  up: string | undefined;
  /** The reader came from another directory. */
  isEntered: boolean;
  actions: EntryActions;
}

function Entries({ sandboxId, directory: { path, entries }, up, isEntered, actions }: EntriesProps) {
  const search = useSignal('');
  const order = useSignal<FileOrder>('name');
  const region = useRef<HTMLDivElement>(null);
  const { route } = useLocation();
  const goUp = (event: KeyboardEvent): void => {
    const isUp = event.key === 'Backspace' || (event.key === 'ArrowUp' && event.altKey);
    if (!isUp || up === undefined || event.target instanceof HTMLInputElement) return;
    event.preventDefault();
    route(up);
  };
  useFirstFocus(region, isEntered);
  const shown = orderFiles(entries, { order: order.value, search: search.value });
  return (
    <div ref={region} class="stack" onKeyDown={goUp}>
      {entries.length > 0 && (
        <Filters search={search} order={order} count={countText(shown.length, entries.length)} up={up} />
      )}
      {entries.length === 0 ? (
        <Empty
          icon="folder"
          title="The folder is empty"
          action={<UpLink href={up}>To the folder above</UpLink>}
        >
          Drop files here to upload them.
        </Empty>
      ) : shown.length === 0 ? (
        <Empty icon="search" title="No name matches">
          Change the search.
        </Empty>
      ) : (
        <FileList sandboxId={sandboxId} directory={path} entries={shown} actions={actions} />
      )}
    </div>
  );
}

function Filters({
  search,
  order,
  count,
  up,
}: {
  search: { value: string };
  order: { value: FileOrder };
  count: string;
  up: string | undefined;
}): ComponentChildren {
  return (
    <div class="filters">
      {up !== undefined && (
        <a class="icon-button" href={up} aria-label="To the folder above" title="To the folder above">
          <Icon name="arrowLeft" />
        </a>
      )}
      <SearchField
        label="Search in this folder"
        placeholder="Search in this folder"
        value={search.value}
        onValue={(value) => (search.value = value)}
      />
      <Segments
        label="Order"
        options={toOptions(FILE_ORDERS)}
        value={order.value}
        onValue={(name) => (order.value = name)}
      />
      <span class="soft" role="status">
        {count}
      </span>
    </div>
  );
}

function countText(shown: number, all: number): string {
  if (shown !== all) return `${formatNumber(shown)} of ${formatNumber(all)}`;
  return `${formatNumber(all)} ${all === 1 ? 'entry' : 'entries'}`;
}

/** A reader who opened a folder with the keyboard continues in it: the link that had the focus is gone. */
function useFirstFocus(region: { current: HTMLElement | null }, isEntered: boolean): void {
  useEffect(() => {
    if (isEntered && document.activeElement === document.body)
      region.current?.querySelector<HTMLElement>('.row-link')?.focus({ preventScroll: true });
  }, []);
}
