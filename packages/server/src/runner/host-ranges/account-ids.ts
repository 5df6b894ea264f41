/** Numbers that the machine has given to users and groups, or set aside for user namespaces. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** Both ends belong to it. */
export interface IdRange {
  first: number;
  last: number;
}

/** Of passwd(5) and group(5): name:password:id. */
const ACCOUNT_FILES = ['passwd', 'group'];
/** Of subuid(5) and subgid(5): name:first:count. */
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

/** A line that has no numbers there gives a range that holds nothing. */
function toRange(first = '', count = ''): IdRange {
  const isRange = /^\d+$/u.test(first) && /^\d+$/u.test(count);
  return isRange ? { first: Number(first), last: Number(first) + Number(count) - 1 } : { first: 0, last: -1 };
}
