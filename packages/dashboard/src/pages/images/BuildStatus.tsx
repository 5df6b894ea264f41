import type { ImageBuildInfo } from '../../../../sdk/src/index.ts';
import { useNow } from '../../service/resource.ts';
import { Badge, type Tone } from '../../ui/Badge.tsx';
import { formatDuration } from '../../ui/format.ts';

const TONES: Readonly<Record<string, Tone>> = {
  running: 'busy',
  done: 'good',
  failed: 'bad',
  cancelled: 'calm',
};

export function BuildStatus({ build: { status } }: { build: ImageBuildInfo }) {
  return <Badge tone={TONES[status] ?? 'calm'}>{status}</Badge>;
}

/** How long a build took, or how long it has been running. */
export function BuildDuration({ build: { createdAt, endedAt } }: { build: ImageBuildInfo }) {
  return endedAt === null ? (
    <RunningDuration createdAt={createdAt} />
  ) : (
    <>{formatDuration(Date.parse(endedAt) - Date.parse(createdAt))}</>
  );
}

function RunningDuration({ createdAt }: { createdAt: string }) {
  const now = useNow();
  return <>{formatDuration(now.value - Date.parse(createdAt))}</>;
}
