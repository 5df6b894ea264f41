import type { DiskInfo } from '../../../../sdk/src/index.ts';
import { Badge, type Tone } from '../../ui/Badge.tsx';

const TONES: Readonly<Record<string, Tone>> = { available: 'calm', attached: 'good', detaching: 'busy' };

export function DiskStatus({ disk: { status, waitsFor } }: { disk: DiskInfo }) {
  return <Badge tone={waitsFor === null ? (TONES[status] ?? 'calm') : 'warn'}>{status}</Badge>;
}

/** The sandbox that has a disk. */
export function SandboxLink({ id }: { id: string | null }) {
  if (id === null) return <span class="soft">–</span>;
  return (
    <a class="mono small" href={`/sandboxes/${encodeURIComponent(id)}`}>
      {id}
    </a>
  );
}
