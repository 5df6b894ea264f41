import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import type { SandboxDiskInfo, SandboxInfo } from '../../../../sdk/src/index.ts';
import { useNow } from '../../service/resource.ts';
import { Badge, Labels, StateBadge, type Tone } from '../../ui/Badge.tsx';
import {
  formatBytes,
  formatDuration,
  formatImage,
  formatMiB,
  formatMoment,
  formatNumber,
} from '../../ui/format.ts';
import { Icon } from '../../ui/Icon.tsx';
import { Card, Facts } from '../../ui/Page.tsx';
import { canUse } from './actions/offered-actions.ts';
import { ConnectCard } from './overview/ConnectCard.tsx';
import { CostFacts } from './overview/CostFacts.tsx';
import { ageOf, describeEnding, explainReason, findEnding } from './overview/life-text.ts';
import { RunBox } from './overview/RunBox.tsx';
import type { TabProps } from './tab-props.ts';
import '../../styles/output.css';

export function OverviewTab({ sandbox, record, reload }: TabProps) {
  const hasEnded = record.endedAt !== null;
  return (
    <div class="stack">
      <EndNotice record={record} />
      <div class="overview-top">
        <Card title="Sandbox">
          <Facts facts={listFacts(record, reload)} />
        </Card>
        <Card title="Cost">
          <CostFacts record={record} />
        </Card>
      </div>
      {!hasEnded && <RunBox sandbox={sandbox} isDisabled={!canUse(record)} onEnd={reload} />}
      {!hasEnded && <ConnectCard id={record.id} />}
    </div>
  );
}

function EndNotice({ record }: { record: SandboxInfo }) {
  const reason = explainReason(record.statusReason);
  if (reason === undefined) return null;
  const isFailure = record.status === 'failed';
  return (
    <div class={`end-notice ${isFailure ? 'bad' : ''}`}>
      <Icon name={isFailure ? 'alert' : 'archive'} />
      <p>
        <b>{isFailure ? 'The sandbox failed.' : 'The sandbox was destroyed.'}</b> {reason}
        {record.endedAt !== null && <span class="soft"> {formatMoment(record.endedAt)}</span>}
      </p>
    </div>
  );
}

function listFacts(record: SandboxInfo, reload: () => void): (readonly [string, ComponentChildren])[] {
  const { image, vcpus, memMiB, diskMiB, createMs, createdAt, endedAt, parentId, disk, region } = record;
  return [
    ['State', <StateBadge key="state" {...record} />],
    [
      'Image',
      <span key="image" class="mono" title={image}>
        {formatImage(image)}
      </span>,
    ],
    ['Size', `${formatNumber(vcpus)} CPU · ${formatMiB(memMiB)} memory · ${formatMiB(diskMiB)} scratch disk`],
    ['Created', formatMoment(createdAt)],
    ...(createMs === null ? [] : ([['Start took', formatDuration(createMs)]] as const)),
    [endedAt === null ? 'Age' : 'Existed for', <Age key="age" record={record} />],
    ...(endedAt === null
      ? ([['Ends', <Countdown key="ends" record={record} reload={reload} />]] as const)
      : ([['Ended', formatMoment(endedAt)]] as const)),
    ['Idle timeout', describeTimeout(record)],
    [
      'Labels',
      Object.keys(record.labels).length === 0 ? (
        <span class="soft">None</span>
      ) : (
        <Labels labels={record.labels} />
      ),
    ],
    ['Disk', <DiskFact key="disk" disk={disk} />],
    [
      'Parent',
      parentId === null ? (
        <span class="soft">None: it was created from its image</span>
      ) : (
        <a class="mono" href={`/sandboxes/${parentId}`}>
          {parentId}
        </a>
      ),
    ],
    ['Region', region],
    ...(record.cwd === null ? [] : ([['Working directory', record.cwd]] as const)),
  ];
}

function describeTimeout({ timeout, autoHibernate }: SandboxInfo): string {
  if (timeout === 0) return 'None';
  return `${formatDuration(timeout * 1000)}, then it ${autoHibernate ? 'hibernates' : 'is destroyed'}`;
}

function Age({ record }: { record: SandboxInfo }) {
  const now = useNow();
  return <>{formatDuration(ageOf(record, now.value))}</>;
}

const SHORT_MS = 60_000;
const LATE_MS = 1500;

/** Counts down to the next end. A use of the sandbox delays it without an event, so the record is read again at zero. */
function Countdown({ record, reload }: { record: SandboxInfo; reload: () => void }) {
  const now = useNow();
  const ending = findEnding(record);
  const at = ending?.at;
  useEffect(() => {
    if (at === undefined) return undefined;
    const left = at - Date.now() + LATE_MS;
    // Browsers fire timers of more than 24.8 days at once.
    if (left < 0 || left > 2 ** 31 - 1) return undefined;
    const timer = setTimeout(reload, left);
    return () => clearTimeout(timer);
  }, [at]);
  const isNear = ending !== undefined && ending.at - now.value < SHORT_MS;
  return (
    <span
      class={isNear ? 'near' : ''}
      title={record.expiresAt === null ? undefined : formatMoment(record.expiresAt)}
    >
      {describeEnding(record, now.value)}
    </span>
  );
}

const DISK_TONES: Readonly<Record<string, Tone>> = { attached: 'good', detaching: 'busy', detached: 'calm' };

function DiskFact({ disk }: { disk: SandboxDiskInfo | null }) {
  if (disk === null) return <span class="soft">None</span>;
  const { name, status, dirtyBytes, waitsFor, recovered } = disk;
  return (
    <>
      <a href={`/disks/${encodeURIComponent(name)}`}>{name}</a>{' '}
      <Badge tone={DISK_TONES[status] ?? 'calm'}>{status}</Badge>
      {dirtyBytes !== null && (
        <div class="hint">
          {formatBytes(dirtyBytes)} are still to be stored
          {waitsFor === null ? '' : `; it waits for ${waitsFor.replaceAll('_', ' ')}`}
        </div>
      )}
      {recovered !== null && (
        <div class="hint">
          Continued from version {formatNumber(recovered.version)} of {formatMoment(recovered.drainedAt)};
          later writes were lost.
        </div>
      )}
    </>
  );
}
