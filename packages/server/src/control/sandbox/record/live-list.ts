/** Lists live sandboxes from memory. Each of them has a driver, which knows its state better than SQL does. */
import { isFinal, type SandboxState } from '@coppice/contract';
import { isWithin } from '../../accounts/organizations/reach.ts';
import type { SandboxRow } from './sandbox-tables.ts';
import type { SandboxFilter } from './sandbox-store.ts';

export const LIVE_STATES = ['creating', 'running', 'hibernated'] as const satisfies readonly SandboxState[];

type ListedRow = Pick<
  SandboxRow,
  'id' | 'organization_id' | 'team_id' | 'status' | 'name' | 'labels' | 'created_at'
>;

/** Returns whether memory can answer the list: it contains no ended sandboxes. */
export function asksForLive({ statuses }: Pick<SandboxFilter, 'statuses'>): boolean {
  return !statuses.some(isFinal);
}

/** Returns what SQL returns for the same filter: newest first, those of the same time by descending id. */
export function listLive<T extends ListedRow>(
  rows: readonly T[],
  { reach, statuses, name, labels, limit, after }: SandboxFilter,
): T[] {
  const wanted = Object.entries(labels);
  const found = rows.filter(
    (row) =>
      isWithin(reach, row) &&
      statuses.includes(row.status) &&
      (name === undefined || row.name === name) &&
      wanted.every(([key, value]) => Object.hasOwn(row.labels, key) && row.labels[key] === value) &&
      (after === undefined || isNewer(after.createdAt, after.id, row)),
  );
  found.sort((a, b) => (isNewer(a.created_at, a.id, b) ? -1 : 1));
  return found.slice(0, limit);
}

function isNewer(createdAt: number, id: string, than: ListedRow): boolean {
  return createdAt === than.created_at ? id > than.id : createdAt > than.created_at;
}
