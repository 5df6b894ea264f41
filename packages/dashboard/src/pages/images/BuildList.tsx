import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import type { ImageBuildInfo } from '../../../../sdk/src/index.ts';
import { useResource } from '../../service/resource.ts';
import { client } from '../../service/session.ts';
import { Button } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { cleanOutput } from './build-log.ts';
import { BuildDuration, BuildStatus } from './BuildStatus.tsx';
import { LIST_BUILDS } from './image-calls.ts';
import { StartBuild } from './StartBuild.tsx';

const COLUMNS: readonly Column<ImageBuildInfo>[] = [
  { id: 'name', label: 'Image', width: '1.6fr', cell: ({ name }) => <b class="mono">{name}</b> },
  { id: 'status', label: 'Status', width: '7.5rem', cell: (build) => <BuildStatus build={build} /> },
  {
    id: 'steps',
    label: 'Steps',
    width: '6rem',
    cell: ({ stepsDone, steps }) => `${stepsDone} of ${steps}`,
  },
  {
    id: 'from',
    label: 'From',
    width: '1.4fr',
    isMinor: true,
    cell: ({ from }) => <span class="mono">{from}</span>,
  },
  {
    id: 'error',
    label: 'Error',
    width: '1.6fr',
    isMinor: true,
    cell: ({ error }) => (error === null ? <span class="soft">–</span> : cleanOutput(error.message)),
  },
  {
    id: 'duration',
    label: 'Duration',
    width: '7rem',
    align: 'end',
    cell: (build) => <BuildDuration build={build} />,
  },
  {
    id: 'age',
    label: 'Started',
    width: '7rem',
    align: 'end',
    isMinor: true,
    cell: ({ createdAt }) => <Ago at={createdAt} />,
  },
];

/** The newest builds of the organization. */
export function BuildList() {
  const current = client.value;
  const { route } = useLocation();
  const isOpen = useSignal(false);
  const resource = useResource(async (signal) => (await current?.builds.list({ signal })) ?? [], [current], {
    // A build begins with its sandbox.
    concerns: ({ type }) => type === 'image.build_ended' || type === 'sandbox.created',
  });
  return (
    <>
      <div class="filters">
        <p class="soft">A build runs steps in a sandbox and keeps its files as an image.</p>
        <span class="gap" />
        <CopyAsCode {...LIST_BUILDS} />
        <Button icon="plus" kind="primary" onClick={() => (isOpen.value = true)}>
          New build
        </Button>
      </div>
      <Loaded resource={resource} rows={4}>
        {(builds) => <BuildTable builds={builds} onStart={() => (isOpen.value = true)} />}
      </Loaded>
      {isOpen.value && (
        <StartBuild
          onClose={() => (isOpen.value = false)}
          onStarted={({ id }) => route(`/images/builds/${encodeURIComponent(id)}`)}
        />
      )}
    </>
  );
}

function BuildTable({ builds, onStart }: { builds: readonly ImageBuildInfo[]; onStart: () => void }) {
  if (builds.length === 0)
    return (
      <Empty
        icon="layers"
        title="Nothing was built yet"
        action={
          <Button kind="primary" icon="plus" onClick={onStart}>
            Start the first build
          </Button>
        }
      >
        Install packages once, and create any number of sandboxes from the result.
      </Empty>
    );
  return (
    <DataTable
      label="Builds"
      columns={COLUMNS}
      rows={builds}
      rowId={({ id }) => id}
      href={({ id }) => `/images/builds/${encodeURIComponent(id)}`}
    />
  );
}
