/** What is known about the selected member of a family, and what can be done with it. */
import type { ComponentChildren } from 'preact';
import {
  findAdmission,
  findTransition,
  type SandboxOperation,
  type SandboxRequest,
  type SandboxState,
} from '../../../../../contract/src/sandbox/lifecycle.ts';
import type { Coppice, SandboxInfo } from '../../../../../sdk/src/index.ts';
import { useResource } from '../../../service/resource.ts';
import { Labels, StateBadge } from '../../../ui/Badge.tsx';
import { Button, ButtonLink, IconButton } from '../../../ui/Button.tsx';
import { CopyButton } from '../../../ui/CopyButton.tsx';
import { formatBytes, formatCents, formatMiB, formatMoment, formatNumber } from '../../../ui/format.ts';
import { Icon, type IconName } from '../../../ui/Icon.tsx';
import { Facts } from '../../../ui/Page.tsx';
import { shortImage } from '../../../ui/short-image.ts';
import { Ago } from '../../../ui/Time.tsx';
import { describeReason } from '../../history/end-reason.ts';
import type { FamilyCosts } from './costs.ts';
import {
  findBelow,
  findBeside,
  findReturning,
  findReturns,
  type Family,
  type FamilyNode,
  type SandboxNode,
  type SnapshotNode,
} from './family.ts';
import { nameOf, type LiveRecords } from './node-text.ts';

/** Dialogs that the panel opens. */
export type NodeAction =
  | 'fork'
  | 'snapshot'
  | 'rollback'
  | 'compare'
  | 'destroy'
  | 'below'
  | 'beside'
  | 'restore'
  | 'edit'
  | 'delete';

export interface PanelProps {
  client: Coppice;
  family: Family;
  live: LiveRecords;
  costs: FamilyCosts | undefined;
  now: number;
  currentId: string;
  onAction: (action: NodeAction) => void;
  onClose: () => void;
}

export function NodePanel({ node, ...props }: PanelProps & { node: FamilyNode }) {
  const name = nameOf(node, props.live);
  return (
    <section class="card family-panel" aria-label={`Selected: ${name}`}>
      <header class="family-panel-head">
        <Icon name={node.kind === 'snapshot' ? 'snapshot' : 'terminal'} />
        <h2>{name}</h2>
        <span class="family-close">
          <IconButton icon="close" label="Close the panel" onClick={props.onClose} />
        </span>
      </header>
      {node.kind === 'snapshot' ? (
        <SnapshotPart node={node} {...props} />
      ) : (
        <SandboxPart key={node.id} node={node} {...props} />
      )}
    </section>
  );
}

function SandboxPart({ node, ...props }: PanelProps & { node: SandboxNode }) {
  const { client, live, costs, now, currentId } = props;
  const { id } = node;
  // Those that have ended are in no list.
  const read = useResource(
    async (signal) => live.get(id) ?? (await client.sandboxes.get(id, { signal }))?.record ?? null,
    [client, id, node.record.status],
    { concerns: ({ runId }) => runId === id },
  );
  const record = live.get(id) ?? read.value ?? undefined;
  const cost = costs?.costOf(id, { isRunning: node.record.status === 'running', now });
  return (
    <>
      <div class="family-id">
        <StateBadge {...(record ?? node.record)} />
        <span class="mono soft">{id}</span>
        <CopyButton text={id} label="Copy the id" />
      </div>
      <Facts
        facts={[
          ['Created', <Ago at={node.createdAt} />],
          ...endFacts(node, record),
          ...(cost === undefined ? [] : [['Cost', formatCents(cost)] as const]),
          ['From', <Origin node={node} live={live} />],
          ...(record === undefined ? [] : shapeFacts(record)),
        ]}
      />
      {record !== undefined && Object.keys(record.labels).length > 0 && <Labels labels={record.labels} />}
      <div class="family-actions">
        {id !== currentId && (
          <ButtonLink href={`/sandboxes/${id}`} icon="terminal">
            Open
          </ButtonLink>
        )}
        <SandboxButtons node={node} record={record} {...props} />
      </div>
    </>
  );
}

function endFacts({ record: node }: SandboxNode, record: SandboxInfo | undefined) {
  if (node.endedAt === null) return [];
  const reason = record?.statusReason ?? null;
  return [
    ['Ended', <Ago at={node.endedAt} />],
    ...(reason === null ? [] : [['Reason', describeReason(reason)] as const]),
  ] as const;
}

function shapeFacts({ image, vcpus, memMiB, disk }: SandboxInfo) {
  return [
    ['Image', <span title={image}>{shortImage(image)}</span>],
    ['Size', `${formatNumber(vcpus)} CPU · ${formatMiB(memMiB)}`],
    ...(disk === null ? [] : [['Disk', disk.name] as const]),
  ] as const;
}

function Origin({ node, live }: { node: FamilyNode; live: LiveRecords }) {
  const { parent } = node;
  if (parent === undefined) return <>an image</>;
  if (node.kind === 'snapshot') return <>{nameOf(parent, live)}</>;
  return (
    <>
      {parent.kind === 'snapshot' ? 'snapshot' : 'sandbox'} {nameOf(parent, live)}
    </>
  );
}

function SandboxButtons({
  node,
  record,
  family,
  onAction,
}: PanelProps & { node: SandboxNode; record: SandboxInfo | undefined }) {
  const below = findBelow(node).length;
  const beside = findBeside(family, node, { keepAncestors: true }).length;
  const besideAll = findBeside(family, node, { keepAncestors: false }).length;
  const returns = findReturns(family, node).length;
  const refusal = (request: SandboxRequest): string | undefined => refusalOf(node, record, request);
  return (
    <>
      <Act icon="fork" refusal={refusal('fork')} onClick={() => onAction('fork')}>
        Fork
      </Act>
      <Act icon="snapshot" refusal={refusal('snapshot')} onClick={() => onAction('snapshot')}>
        Snapshot
      </Act>
      <Act
        icon="rewind"
        refusal={
          refusal('rollback') ?? (returns === 0 ? 'Neither it nor an ancestor has a snapshot.' : undefined)
        }
        onClick={() => onAction('rollback')}
      >
        Roll back
      </Act>
      <Act icon="search" onClick={() => onAction('compare')}>
        Compare
      </Act>
      {below > 0 && (
        <Act icon="trash" isDanger onClick={() => onAction('below')}>
          Destroy all below ({formatNumber(below)})
        </Act>
      )}
      {besideAll > 0 && (
        <Act icon="trash" isDanger onClick={() => onAction('beside')}>
          Keep only this branch{beside > 0 ? ` (ends ${formatNumber(beside)})` : ''}
        </Act>
      )}
      <Act icon="trash" isDanger refusal={refusal('destroy')} onClick={() => onAction('destroy')}>
        Destroy
      </Act>
    </>
  );
}

/** Returns why the service would refuse a request; undefined if it would not. */
function refusalOf({ record: node }: SandboxNode, record: SandboxInfo | undefined, request: SandboxRequest) {
  const state = node.status as SandboxState;
  const operation = (record?.operation ?? null) as SandboxOperation | null;
  if (findTransition(state, request).outcome === 'refuse')
    return node.endedAt === null ? `Not while it is ${state}.` : 'It has ended.';
  return findAdmission(operation, request) === 'refuse' ? `Not while it is ${operation}.` : undefined;
}

function SnapshotPart({ node, family, live, onAction }: PanelProps & { node: SnapshotNode }) {
  const { record } = node;
  const returning = findReturning(family, node).length;
  const below = findBelow(node).length;
  return (
    <>
      <div class="family-id">
        <span class="mono soft">{record.id}</span>
        <CopyButton text={record.id} label="Copy the id" />
      </div>
      <Facts
        facts={[
          ['Taken', <Ago at={record.createdAt} />],
          ['Of', <Origin node={node} live={live} />],
          ['Size on disk', formatBytes(record.sizeBytes)],
          ['Expires', record.expiresAt === null ? 'never' : formatMoment(record.expiresAt)],
          ...(record.disk === null
            ? []
            : [['Disk', `${record.disk.name}, version ${record.disk.version}`] as const]),
        ]}
      />
      <div class="family-actions">
        <Act icon="plus" onClick={() => onAction('restore')}>
          Restore
        </Act>
        <Act
          icon="rewind"
          refusal={returning === 0 ? 'No running sandbox is it or descends from it.' : undefined}
          onClick={() => onAction('rollback')}
        >
          Roll back
        </Act>
        <Act icon="search" onClick={() => onAction('compare')}>
          Compare
        </Act>
        <Act icon="settings" onClick={() => onAction('edit')}>
          Change
        </Act>
        {below > 0 && (
          <Act icon="trash" isDanger onClick={() => onAction('below')}>
            Destroy all below ({formatNumber(below)})
          </Act>
        )}
        <Act icon="trash" isDanger onClick={() => onAction('delete')}>
          Delete
        </Act>
      </div>
    </>
  );
}

function Act({
  icon,
  refusal,
  isDanger = false,
  onClick,
  children,
}: {
  icon: IconName;
  refusal?: string | undefined;
  isDanger?: boolean;
  onClick: () => void;
  children: ComponentChildren;
}) {
  return (
    <Button
      icon={icon}
      kind={isDanger ? 'danger' : 'plain'}
      isDisabled={refusal !== undefined}
      title={refusal}
      onClick={onClick}
    >
      {children}
    </Button>
  );
}
