/** Differences of two members of a family: of their records, and of the files of two running sandboxes. */
import type { FileEntry, SandboxInfo, SnapshotInfo } from '../../../../../sdk/src/index.ts';
import { formatDuration, formatMiB, formatMoment } from '../../../ui/format.ts';

export interface Fact {
  name: string;
  left: string;
  right: string;
  isDifferent: boolean;
}

export type Compared = { kind: 'sandbox'; record: SandboxInfo } | { kind: 'snapshot'; record: SnapshotInfo };

const NONE = '—';
const SECOND_MS = 1000;

/** Returns what both sides have, or one of them, in the order of the records. */
export function compareFacts(left: Compared, right: Compared, now: number): Fact[] {
  const [ofLeft, ofRight] = [describe(left, now), describe(right, now)];
  const names = new Set([...ofLeft.keys(), ...ofRight.keys()]);
  return Array.from(names, (name) => {
    const [leftText, rightText] = [ofLeft.get(name) ?? NONE, ofRight.get(name) ?? NONE];
    return { name, left: leftText, right: rightText, isDifferent: leftText !== rightText };
  });
}

function describe(one: Compared, now: number): Map<string, string> {
  const { name, image, vcpus, memMiB, diskMiB, createdAt } = one.record;
  const facts = new Map([
    ['Kind', one.kind],
    ['Name', name ?? NONE],
    ['Image', image],
    ['CPUs', String(vcpus)],
    ['Memory', formatMiB(memMiB)],
    ['Scratch disk', formatMiB(diskMiB)],
    ['Created', formatMoment(createdAt)],
    ['Age', formatDuration(Math.max(0, now - Date.parse(createdAt)))],
  ]);
  if (one.kind === 'sandbox') addSettings(facts, one.record);
  else {
    facts.set('Persistent disk', one.record.disk?.name ?? NONE);
    facts.set('Expires', formatTime(one.record.expiresAt));
    facts.set('Taken of', one.record.runId);
  }
  return facts;
}

function addSettings(facts: Map<string, string>, record: SandboxInfo): void {
  const { timeout, maxLifetime, labels } = record;
  facts.set('State', record.status);
  facts.set('Ended', formatTime(record.endedAt));
  facts.set('Reason of the end', record.statusReason ?? NONE);
  facts.set('Persistent disk', record.disk?.name ?? NONE);
  facts.set('Idle timeout', timeout === 0 ? NONE : formatDuration(timeout * SECOND_MS));
  facts.set('When idle', record.autoHibernate ? 'hibernates' : 'is destroyed');
  facts.set('Longest life', maxLifetime === null ? NONE : formatDuration(maxLifetime * SECOND_MS));
  facts.set('Ends at', formatTime(record.endsAt));
  facts.set('Working directory', record.cwd ?? NONE);
  facts.set('Parent', record.parentId ?? NONE);
  for (const label of Object.keys(labels).sort()) facts.set(`Label ${label}`, labels[label] ?? NONE);
}

function formatTime(timestamp: string | null): string {
  return timestamp === null ? NONE : formatMoment(timestamp);
}

export interface FileChange {
  /** Path below the compared directory. */
  path: string;
  kind: 'added' | 'removed' | 'changed';
  left: FileEntry | undefined;
  right: FileEntry | undefined;
}

/**
 * Returns the entries that only one side has, or that differ, by path. Two files are the same if type, size, time, mode
 * and target are: their content is not read. A directory's size and time follow from its entries.
 */
export function compareFiles(
  left: ReadonlyMap<string, FileEntry>,
  right: ReadonlyMap<string, FileEntry>,
): FileChange[] {
  const changes: FileChange[] = [];
  for (const [path, entry] of left) {
    const other = right.get(path);
    if (other === undefined) changes.push({ path, kind: 'removed', left: entry, right: undefined });
    else if (!isSame(entry, other)) changes.push({ path, kind: 'changed', left: entry, right: other });
  }
  for (const [path, entry] of right)
    if (!left.has(path)) changes.push({ path, kind: 'added', left: undefined, right: entry });
  return changes.sort((a, b) => (a.path < b.path ? -1 : 1));
}

function isSame(a: FileEntry, b: FileEntry): boolean {
  if (a.type !== b.type || a.mode !== b.mode || a.target !== b.target) return false;
  return a.type === 'dir' || (a.size === b.size && a.mtime === b.mtime);
}

export interface Listing {
  /** By path below the directory. */
  entries: ReadonlyMap<string, FileEntry>;
  /** Not everything was listed. */
  isCut: boolean;
}

interface Limits {
  directories: number;
  entries: number;
}

/** Lists a directory with everything below it, level by level, within limits: each directory is a call. */
export async function listBelow(
  list: (path: string) => Promise<readonly FileEntry[]>,
  directory: string,
  { directories: maxDirectories, entries: maxEntries }: Limits,
): Promise<Listing> {
  const root = directory.replace(/\/+$/u, '');
  const entries = new Map<string, FileEntry>();
  const directories = [directory];
  for (let index = 0; index < directories.length; index += 1) {
    if (index === maxDirectories) return { entries, isCut: true };
    for (const entry of await list(directories[index] ?? directory)) {
      if (entries.size === maxEntries) return { entries, isCut: true };
      entries.set(entry.path.slice(root.length + 1), entry);
      if (entry.type === 'dir') directories.push(entry.path);
    }
  }
  return { entries, isCut: false };
}
