import type { ComponentType } from 'preact';
import { useRoute } from 'preact-iso';
import { Suspense } from 'preact/compat';
import type { Sandbox } from '../../../../sdk/src/index.ts';
import { useResource } from '../../service/resource.ts';
import { client } from '../../service/session.ts';
import { StateBadge } from '../../ui/Badge.tsx';
import { ButtonLink } from '../../ui/Button.tsx';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Page } from '../../ui/Page.tsx';
import { Empty, Loaded, Skeleton } from '../../ui/states.tsx';
import { lazyPart } from '../../ui/lazy-part.ts';
import { Boundary } from '../../ui/Boundary.tsx';
import { Tabs } from '../../ui/Tabs.tsx';
import { SandboxActions } from './SandboxActions.tsx';
import type { TabProps } from './tab-props.ts';

interface TabEntry {
  id: string;
  label: string;
  component: ComponentType<TabProps>;
}

const TABS: readonly TabEntry[] = [
  {
    id: 'overview',
    label: 'Overview',
    component: lazyPart(async () => (await import('./OverviewTab.tsx')).OverviewTab),
  },
  {
    id: 'terminal',
    label: 'Terminal',
    component: lazyPart(async () => (await import('./TerminalTab.tsx')).TerminalTab),
  },
  {
    id: 'commands',
    label: 'Commands',
    component: lazyPart(async () => (await import('./CommandsTab.tsx')).CommandsTab),
  },
  { id: 'files', label: 'Files', component: lazyPart(async () => (await import('./FilesTab.tsx')).FilesTab) },
  { id: 'ports', label: 'Ports', component: lazyPart(async () => (await import('./PortsTab.tsx')).PortsTab) },
  {
    id: 'metrics',
    label: 'Metrics',
    component: lazyPart(async () => (await import('./MetricsTab.tsx')).MetricsTab),
  },
  {
    id: 'network',
    label: 'Network',
    component: lazyPart(async () => (await import('./NetworkTab.tsx')).NetworkTab),
  },
  {
    id: 'lineage',
    label: 'Lineage',
    component: lazyPart(async () => (await import('./LineageTab.tsx')).LineageTab),
  },
  {
    id: 'events',
    label: 'Events',
    component: lazyPart(async () => (await import('./EventsTab.tsx')).EventsTab),
  },
  {
    id: 'audit',
    label: 'Audit log',
    component: lazyPart(async () => (await import('./AuditTab.tsx')).AuditTab),
  },
];

/** `/sandboxes/:id/:tab?` */
export function SandboxPage() {
  const { id = '', tab = 'overview' } = useRoute().params;
  const current = client.value;
  const resource = useResource(
    async (signal) => (await current?.sandboxes.get(id, { signal })) ?? null,
    [current, id],
    { concerns: ({ runId }) => runId === id },
  );
  return (
    <Loaded resource={resource} rows={8}>
      {(sandbox) =>
        sandbox === null ? (
          <Missing id={id} />
        ) : (
          <Found sandbox={sandbox} tab={tab} reload={resource.reload} />
        )
      }
    </Loaded>
  );
}

function Found({ sandbox, tab, reload }: { sandbox: Sandbox; tab: string; reload: () => void }) {
  const { record } = sandbox;
  const { id, name } = record;
  const shown = TABS.find((entry) => entry.id === tab) ?? TABS[0];
  const Shown = shown?.component ?? Skeleton;
  return (
    <Page
      title={name ?? id}
      lead={
        <>
          <StateBadge {...record} />
          <span class="mono">{id}</span>
          <CopyButton text={id} label="Copy the id" />
        </>
      }
      actions={<SandboxActions sandbox={sandbox} record={record} reload={reload} />}
    >
      <Tabs
        label="Parts of the sandbox"
        current={shown?.id ?? ''}
        tabs={TABS.map(({ id: part, label }) => ({
          id: part,
          label,
          href: part === 'overview' ? `/sandboxes/${id}` : `/sandboxes/${id}/${part}`,
        }))}
      />
      <Boundary scope={`${id}/${tab}`}>
        <Suspense fallback={<Skeleton />}>
          <Shown sandbox={sandbox} record={record} reload={reload} />
        </Suspense>
      </Boundary>
    </Page>
  );
}

function Missing({ id }: { id: string }) {
  return (
    <Page title="Not found">
      <Empty
        icon="search"
        title="There is no such sandbox"
        action={
          <ButtonLink href="/sandboxes" kind="primary">
            To the sandboxes
          </ButtonLink>
        }
      >
        No sandbox that you can see has the id {id}. It may belong to another team or organization.
      </Empty>
    </Page>
  );
}
