import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import type { ImageInfo, ReadyShape } from '../../../../sdk/src/index.ts';
import { requireClient } from '../../service/require-client.ts';
import { useResource } from '../../service/resource.ts';
import { client } from '../../service/session.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Badge } from '../../ui/Badge.tsx';
import { Button } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { formatBytes, formatMiB, formatNumber } from '../../ui/format.ts';
import { Icon } from '../../ui/Icon.tsx';
import { Menu } from '../../ui/Menu.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { deleteImageCall, LIST_IMAGES } from './image-calls.ts';
import { PrepareImage } from './PrepareImage.tsx';

/** Returns the reference without its digest, but with its registry: `built/app:1` is not `docker.io/built/app:1`. */
function nameOf(image: string): string {
  return image.replace(/@sha256:[0-9a-f]+$/u, '');
}

/** Shapes in a row of the table; its tooltip has all. */
const MAX_SHAPES = 2;

/** Images of the service, with what of them is prepared. */
export function PreparedImages() {
  const current = client.value;
  const prepared = useSignal<string | undefined>(undefined);
  const deleted = useSignal<string | undefined>(undefined);
  const resource = useResource(async (signal) => (await current?.images.list({ signal })) ?? [], [current], {
    concerns: ({ type }) => type === 'image.build_ended' || type === 'sandbox.created',
  });
  return (
    <>
      <div class="filters">
        <p class="soft">
          Creates from a prepared image and shape are fast. The first with any other takes longer.
        </p>
        <span class="gap" />
        <CopyAsCode {...LIST_IMAGES} />
        <Button icon="plus" kind="primary" onClick={() => (prepared.value = '')}>
          Prepare an image
        </Button>
      </div>
      <Loaded resource={resource} rows={4}>
        {(images) => (
          <ImageTable
            images={images}
            onPrepare={(image) => (prepared.value = image)}
            onDelete={(image) => (deleted.value = image)}
          />
        )}
      </Loaded>
      {prepared.value !== undefined && (
        <PrepareImage
          image={prepared.value}
          onClose={() => (prepared.value = undefined)}
          onDone={resource.reload}
        />
      )}
      {deleted.value !== undefined && (
        <DeleteImage
          image={deleted.value}
          onClose={() => (deleted.value = undefined)}
          onDone={resource.reload}
        />
      )}
    </>
  );
}

interface TableProps {
  images: readonly ImageInfo[];
  onPrepare: (image: string) => void;
  onDelete: (image: string) => void;
}

function ImageTable({ images, onPrepare, onDelete }: TableProps) {
  if (images.length === 0)
    return (
      <Empty
        icon="layers"
        title="No image is prepared yet"
        action={
          <Button kind="primary" icon="plus" onClick={() => onPrepare('')}>
            Prepare the first one
          </Button>
        }
      >
        Prepare an image ahead, so that the first sandbox from it starts in a moment.
      </Empty>
    );
  const columns: readonly Column<ImageInfo>[] = [
    ...COLUMNS,
    {
      id: 'actions',
      label: 'Actions',
      width: '4.5rem',
      align: 'end',
      cell: ({ image }) => <RowMenu image={image} onPrepare={onPrepare} onDelete={onDelete} />,
    },
  ];
  return <DataTable label="Images" columns={columns} rows={images} rowId={({ image }) => image} />;
}

const COLUMNS: readonly Column<ImageInfo>[] = [
  {
    id: 'image',
    label: 'Image',
    width: '2.4fr',
    cell: ({ image, digest }) => (
      <span class="mono" title={`${nameOf(image)}\n${digest}`}>
        {nameOf(image)}
      </span>
    ),
  },
  {
    id: 'status',
    label: 'Status',
    width: '7.5rem',
    cell: ({ status }) => <Badge tone={status === 'ready' ? 'good' : 'busy'}>{status}</Badge>,
  },
  {
    id: 'shapes',
    label: 'Prepared shapes',
    isMinor: true,
    width: '2.4fr',
    cell: ({ shapes }) => <Shapes shapes={shapes} />,
  },
  {
    id: 'size',
    label: 'Size',
    width: '6.5rem',
    align: 'end',
    cell: ({ sizeBytes }) => formatBytes(sizeBytes),
  },
  {
    id: 'prepared',
    label: 'Prepared',
    width: '7rem',
    align: 'end',
    isMinor: true,
    cell: ({ preparedAt }) => (preparedAt === null ? '–' : <Ago at={preparedAt} />),
  },
];

function RowMenu({ image, onPrepare, onDelete }: { image: string } & Omit<TableProps, 'images'>) {
  const name = nameOf(image);
  const { route } = useLocation();
  const isBuilt = name.startsWith('built/');
  return (
    <Menu
      label={`Actions for ${name}`}
      button={<Icon name="more" />}
      items={[
        {
          label: 'New sandbox',
          icon: 'terminal',
          onSelect: () => route(`/sandboxes/new?image=${encodeURIComponent(name)}`),
        },
        { label: 'Prepare a shape', icon: 'plus', onSelect: () => onPrepare(name) },
        {
          label: 'Delete',
          icon: 'trash',
          kind: 'danger',
          isDisabled: !isBuilt,
          title: isBuilt ? undefined : 'Only images that were built from steps can be deleted.',
          onSelect: () => onDelete(name),
        },
      ]}
    />
  );
}

function Shapes({ shapes }: { shapes: readonly ReadyShape[] }) {
  if (shapes.length === 0) return <span class="soft">none</span>;
  return (
    <span class="labels single" title={shapes.map(describeShape).join('\n')}>
      {shapes.slice(0, MAX_SHAPES).map((shape) => (
        <span key={describeShape(shape)} class="label">
          {formatNumber(shape.vcpus)} CPU · {formatMiB(shape.memMiB)}
        </span>
      ))}
      {shapes.length > MAX_SHAPES && <span class="label">+{shapes.length - MAX_SHAPES}</span>}
    </span>
  );
}

function describeShape({ vcpus, memMiB, diskMiB, maxDiskMiB }: ReadyShape): string {
  return `${vcpus} CPU, ${formatMiB(memMiB)} memory, disk from ${formatMiB(diskMiB)} to ${formatMiB(maxDiskMiB)}`;
}

function DeleteImage({ image, onClose, onDone }: { image: string; onClose: () => void; onDone: () => void }) {
  return (
    <ActionDialog
      title="Delete the image"
      verb="Delete image"
      kind="danger"
      done={`${image} is deleted.`}
      act={() => requireClient().images.delete(image)}
      onClose={onClose}
      onDone={onDone}
      code={deleteImageCall(image)}
    >
      <p>
        New sandboxes cannot be created from <span class="mono">{image}</span>. Those that exist keep what
        they need.
      </p>
    </ActionDialog>
  );
}
