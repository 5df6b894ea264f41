/** What is known about the selected member of a family, and what can be done with it. */
import type { ComponentChildren } from 'preact';
import type { Coppice, SandboxInfo } from '../../../../../sdk/src/index.ts';
import { useResource } from '../../../service/resource.ts';
import { Labels, StateBadge } from '../../../ui/Badge.tsx';
import { Button, ButtonLink, IconButton } from '../../../ui/Button.tsx';
import { CopyButton } from '../../../ui/CopyButton.tsx';
import {
  formatBytes,
  formatCents,
  formatImage,
  formatMiB,
  formatMoment,
  formatNumber,
} from '../../../ui/format.ts';
import { Icon, type IconName } from '../../../ui/Icon.tsx';
import { Facts } from '../../../ui/Page.tsx';
import { Ago } from '../../../ui/Time.tsx';
import { describeReason } from '../../history/end-reason.ts';
import { listActions, type ActionId, type OfferedAction } from '../actions/offered-actions.ts';
import { costOf, type FamilyCosts } from './costs.ts';
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

/** Dialogs that the panel opens for a sandbox: those of its page. */
export type SandboxAction = Exclude<ActionId, 'configure'>;
export type SnapshotAction = 'restore' | 'return' | 'edit' | 'delete';
/** Dialogs for a part of the family. */
export type FamilyAction = 'compare' | 'below' | 'beside';

export interface PanelProps {
  client: Coppice;
  family: Family;
  live: LiveRecords;
  costs: FamilyCosts | undefined;
  now: number;
  currentId: string;
  onFamily: (node: FamilyNode, action: FamilyAction) => void;
  onSandbox: (node: SandboxNode, action: SandboxAction) => void;
  onSnapshot: (node: SnapshotNode, action: SnapshotAction) => void;
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
  const cost = costOf(node, { live, costs, now });
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
    ['Image', <span title={image}>{formatImage(image)}</span>],
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
  onSandbox,
  onFamily,
}: PanelProps & { node: SandboxNode; record: SandboxInfo | undefined }) {
  const { status } = node.record;
  const actions = listActions({ status, operation: record?.operation ?? null });
  const beside = findBeside(family, node, { keepAncestors: true }).length;
  const hasOthers = findBeside(family, node, { keepAncestors: false }).length > 0;
  const hasReturns = findReturns(family, node).length > 0;
  const act = ({ id, label, icon, isAllowed, note }: OfferedAction) => {
    if (id === 'configure') return null;
    const refusal =
      id === 'rollback' && !hasReturns ? 'Neither it nor an ancestor has a snapshot.' : undefined;
    return (
      <Act
        key={id}
        icon={icon}
        isDisabled={!isAllowed || refusal !== undefined}
        note={isAllowed ? (refusal ?? note) : note}
        isDanger={id === 'destroy'}
        onClick={() => onSandbox(node, id)}
      >
        {label}
      </Act>
    );
  };
  return (
    <>
      {actions.filter(({ id }) => id !== 'destroy').map(act)}
      <Act icon="search" onClick={() => onFamily(node, 'compare')}>
        Compare
      </Act>
      <DestroyBelow node={node} onFamily={onFamily} />
      {hasOthers && (
        <Act icon="trash" isDanger onClick={() => onFamily(node, 'beside')}>
          Keep only this branch{beside > 0 ? ` (ends ${formatNumber(beside)})` : ''}
        </Act>
      )}
      {actions.filter(({ id }) => id === 'destroy').map(act)}
    </>
  );
}

function DestroyBelow({ node, onFamily }: Pick<PanelProps, 'onFamily'> & { node: FamilyNode }) {
  const below = findBelow(node).length;
  if (below === 0) return null;
  return (
    <Act icon="trash" isDanger onClick={() => onFamily(node, 'below')}>
      Destroy all below ({formatNumber(below)})
    </Act>
  );
}

function SnapshotPart({ node, family, live, onSnapshot, onFamily }: PanelProps & { node: SnapshotNode }) {
  const { record } = node;
  const returning = findReturning(family, node).length;
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
        <Act icon="plus" onClick={() => onSnapshot(node, 'restore')}>
          Restore
        </Act>
        <Act
          icon="rewind"
          isDisabled={returning === 0}
          note={returning === 0 ? 'The sandbox it was taken of and those below it do not run.' : undefined}
          onClick={() => onSnapshot(node, 'return')}
        >
          Roll back
        </Act>
        <Act icon="search" onClick={() => onFamily(node, 'compare')}>
          Compare
        </Act>
        <Act icon="settings" onClick={() => onSnapshot(node, 'edit')}>
          Change
        </Act>
        <DestroyBelow node={node} onFamily={onFamily} />
        <Act icon="trash" isDanger onClick={() => onSnapshot(node, 'delete')}>
          Delete
        </Act>
      </div>
    </>
  );
}

function Act({
  icon,
  note,
  isDisabled = false,
  isDanger = false,
  onClick,
  children,
}: {
  icon: IconName;
  /** Why it cannot be done, or that it waits. */
  note?: string | undefined;
  isDisabled?: boolean;
  isDanger?: boolean;
  onClick: () => void;
  children: ComponentChildren;
}) {
  return (
    <Button
      icon={icon}
      kind={isDanger ? 'danger' : 'plain'}
      isDisabled={isDisabled}
      title={note}
      onClick={onClick}
    >
      {children}
    </Button>
  );
}
