import type { ComponentChildren } from 'preact';

export type Tone = 'good' | 'bad' | 'busy' | 'calm' | 'warn';

/** A short state. The colour only repeats what the text says. */
export function Badge({ tone = 'calm', children }: { tone?: Tone; children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

const STATE_TONES: Readonly<Record<string, Tone>> = {
  creating: 'busy',
  running: 'good',
  hibernated: 'calm',
  destroyed: 'calm',
  failed: 'bad',
};

/** State of a sandbox, or the operation that is under way. */
export function StateBadge({ status, operation }: { status: string; operation?: string | null }) {
  if (operation !== null && operation !== undefined)
    return <Badge tone="busy">{operation.replaceAll('_', ' ')}</Badge>;
  return <Badge tone={STATE_TONES[status] ?? 'calm'}>{status}</Badge>;
}

/** Labels of a sandbox. */
export function Labels({ labels }: { labels: Readonly<Record<string, string>> }) {
  return (
    <span class="labels">
      {Object.entries(labels).map(([name, value]) => (
        <span key={name} class="label" title={`${name}=${value}`}>
          {name}
          {value !== '' && <b>{value}</b>}
        </span>
      ))}
    </span>
  );
}
