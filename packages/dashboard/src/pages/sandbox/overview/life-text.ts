/** How the life of a sandbox reads: why it ended, and when it will. */
import type { SandboxInfo } from '../../../../../sdk/src/index.ts';
import { formatDuration } from '../../../ui/format.ts';

const REASONS: Readonly<Record<string, string>> = {
  requested: 'It was destroyed on request.',
  idle_timeout: 'It was idle for longer than its idle timeout.',
  max_lifetime: 'It reached its longest life.',
  expires_at: 'It reached the end that was set for it.',
  guest_shutdown: 'Its system shut itself down.',
  guest_panic: 'The kernel of its system crashed. Memory that ran out is a frequent cause.',
  vm_lost: 'Its virtual machine ended unexpectedly.',
  create_failed: 'It could not be created.',
  control_restarted: 'The service restarted while it was being created. Create it again.',
};

/** Explains why a sandbox ended. A reason of a newer service is shown as it is. */
export function explainReason(reason: string | null): string | undefined {
  if (reason === null) return undefined;
  return REASONS[reason] ?? `${reason.replaceAll('_', ' ')}.`;
}

type Kind = 'idle' | 'lifetime' | 'end';

export interface Ending {
  kind: Kind;
  /** Milliseconds since 1970. */
  at: number;
}

/** Times of one record are computed at slightly different moments. */
const SAME_MS = 1500;

/** Returns the next end of a sandbox, and which of its limits it is. Undefined if it has none. */
export function findEnding(record: SandboxInfo): Ending | undefined {
  if (record.expiresAt === null || record.endedAt !== null) return undefined;
  const at = Date.parse(record.expiresAt);
  const lifetimeEnd =
    record.maxLifetime === null ? Infinity : Date.parse(record.createdAt) + record.maxLifetime * 1000;
  const chosenEnd = record.endsAt === null ? Infinity : Date.parse(record.endsAt);
  if (Math.abs(at - chosenEnd) < SAME_MS) return { kind: 'end', at };
  if (Math.abs(at - lifetimeEnd) < SAME_MS) return { kind: 'lifetime', at };
  return { kind: 'idle', at };
}

/** Describes what happens at the next end, with the time that is left. */
export function describeEnding(record: SandboxInfo, now: number): string {
  const ending = findEnding(record);
  // The service reports no end of an idle timer that a call in progress holds.
  if (ending === undefined) return record.timeout === 0 ? 'Never' : 'Not while it is in use';
  const verb = ending.kind === 'idle' && record.autoHibernate ? 'Hibernates' : 'Is destroyed';
  const condition = ending.kind === 'idle' ? ' unless it is used' : '';
  if (ending.at <= now) return `${verb} now${condition}`;
  // Whole seconds, so that the last one is "1 s" and not "800 ms".
  const left = Math.ceil((ending.at - now) / 1000) * 1000;
  return `${verb} in ${formatDuration(left)}${condition}`;
}

/** Returns how long a sandbox has existed, in milliseconds. */
export function ageOf({ createdAt, endedAt }: SandboxInfo, now: number): number {
  return Math.max(0, (endedAt === null ? now : Date.parse(endedAt)) - Date.parse(createdAt));
}
