/** Ids that the machine has assigned to users and groups, or reserved for user namespaces. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** A range of ids, both ends included. */
export interface IdRange {
  first: number;
  last: number;
}

/** Format of passwd(5) and group(5): name:password:id. */
const ACCOUNT_FILES = ['passwd', 'group'];
/** Format of subuid(5) and subgid(5): name:first:count. */
const SUBORDINATE_FILES = ['subuid', 'subgid'];

export function listAccountIds(etc = '/etc'): IdRange[] {
  return [
    ...ACCOUNT_FILES.flatMap((name) => readFields(join(etc, name)).map(([, , id]) => toRange(id, '1'))),
    ...SUBORDINATE_FILES.flatMap((name) =>
      readFields(join(etc, name)).map(([, first, count]) => toRange(first, count)),
    ),
  ].filter(({ first, last }) => first <= last);
}

export function idsOverlap(a: IdRange, b: IdRange): boolean {
  return a.first <= b.last && b.first <= a.last;
}

function readFields(path: string): string[][] {
  if (!existsSync(path)) return [];
  const lines = readFileSync(path, 'utf8').split('\n');
  return lines.map((line) => line.split(':'));
}

/** Returns an empty range when a field is not a number. */
function toRange(first = '', count = ''): IdRange {
  const isRange = /^\d+$/u.test(first) && /^\d+$/u.test(count);
  return isRange ? { first: Number(first), last: Number(first) + Number(count) - 1 } : { first: 0, last: -1 };
}
