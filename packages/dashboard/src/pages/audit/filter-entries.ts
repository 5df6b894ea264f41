/** Which entries of a log a reader wants to see. */
import { toPlainText, toText, type Sentence } from './sentence.ts';

/** The fields that entries of all logs have. */
export interface LogEntry {
  seq: number;
  ts: string;
  event: string;
  data: Record<string, unknown>;
  hmac: string;
}

/** An entry with what a list shows of it. */
export interface Line<Entry extends LogEntry> {
  entry: Entry;
  sentence: Sentence;
  /** In the log of an organization. */
  actor?: { id: string; name: Sentence };
  /** All that a search finds it by, in lower case. */
  text: string;
}

export interface EntryFilter {
  /** Words that must all occur. */
  search: string;
  /** Only entries of these events; undefined for all. */
  isWanted?: ((event: string) => boolean) | undefined;
  /** Only entries of this actor; empty for all. */
  actor?: string;
  /** Unix milliseconds: not before, and not after. */
  from?: number | undefined;
  to?: number | undefined;
}

export function toLine<Entry extends LogEntry>(
  entry: Entry,
  sentence: Sentence,
  actor?: { id: string; name: Sentence; address: string },
): Line<Entry> {
  const { seq, event, data, hmac } = entry;
  const parts = [`#${seq}`, event, toPlainText(sentence), ...Object.values(data).map(toText), hmac];
  if (actor !== undefined) parts.push(actor.id, toPlainText(actor.name), actor.address);
  const line = { entry, sentence, text: parts.join('\n').toLowerCase() };
  return actor === undefined ? line : { ...line, actor: { id: actor.id, name: actor.name } };
}

/** Returns the wanted lines of a log, newest first. */
export function filterLines<Entry extends LogEntry>(
  lines: readonly Line<Entry>[],
  { search, isWanted, actor = '', from, to }: EntryFilter,
): readonly Line<Entry>[] {
  const words = search.toLowerCase().split(/\s+/u).filter(Boolean);
  const kept = lines.filter((line) => {
    const { event, ts } = line.entry;
    if (isWanted !== undefined && !isWanted(event)) return false;
    if (actor !== '' && line.actor?.id !== actor) return false;
    if (!words.every((word) => line.text.includes(word))) return false;
    if (from === undefined && to === undefined) return true;
    const at = Date.parse(ts);
    return at >= (from ?? -Infinity) && at <= (to ?? Infinity);
  });
  return kept.reverse();
}

/** Kinds of entries in the log of a sandbox. */
export const KINDS = ['all', 'commands', 'files', 'network', 'credentials', 'disks', 'sandbox'] as const;
export type Kind = (typeof KINDS)[number];

const KIND_OF: Readonly<Record<string, Kind>> = {
  exec: 'commands',
  terminal: 'commands',
  ssh: 'commands',
  file: 'files',
  network: 'network',
  policy: 'network',
  credential: 'credentials',
  credentials: 'credentials',
  disk: 'disks',
  sandbox: 'sandbox',
  settings: 'sandbox',
};

/** Whether an event is of a kind. An unknown event is only in the list of all. */
export function isOfKind(event: string, kind: Kind): boolean {
  const subject = event.split('.')[0] ?? '';
  return kind === 'all' || (Object.hasOwn(KIND_OF, subject) && KIND_OF[subject] === kind);
}

/** How an entry stands out: refusals and failures. */
export function markOf({ event, data }: Pick<LogEntry, 'event' | 'data'>): 'bad' | 'warn' | 'calm' {
  if (event === 'network.blocked' || event === 'sandbox.failed' || event === 'session.failed') return 'bad';
  const { exit_code: code, complete, status } = data;
  if (event.startsWith('exec.') && code !== undefined && code !== 0) return 'warn';
  if (complete === false) return 'warn';
  return event === 'credential.proxied' && typeof status === 'number' && status >= 400 ? 'warn' : 'calm';
}

/** Choices of a time range, with their length in milliseconds. */
const RANGES = {
  all: undefined,
  hour: 3_600_000,
  day: 86_400_000,
  week: 7 * 86_400_000,
  month: 30 * 86_400_000,
  own: undefined,
} as const;
export type Range = keyof typeof RANGES;

/** Returns the limits of a chosen range. `from` and `to` are local times of form fields; empty ones set no limit. */
export function rangeLimits(
  range: Range,
  { from, to, now }: { from: string; to: string; now: number },
): { from?: number | undefined; to?: number | undefined } {
  if (range === 'own') return { from: readLocal(from), to: endOfMinute(readLocal(to)) };
  const length = RANGES[range];
  return length === undefined ? {} : { from: now - length };
}

function readLocal(text: string): number | undefined {
  const ms = text === '' ? Number.NaN : new Date(text).getTime();
  return Number.isNaN(ms) ? undefined : ms;
}

/** The field has minutes: the last one is meant as a whole. */
function endOfMinute(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : ms + 59_999;
}
