import type { FileEntry } from '../../../../../sdk/src/index.ts';

const TYPE_LETTERS: Readonly<Record<FileEntry['type'], string>> = {
  file: '-',
  dir: 'd',
  symlink: 'l',
  other: '?',
};
const SPECIAL = [0o4000, 0o2000, 0o1000] as const;

/** The permissions in octal that the service accepts. */
export const MODE_PATTERN = /^[0-7]{3,4}$/u;

/** Writes permissions as `ls` does, for example `-rwxr-x--T`. Text that is not octal is returned as it is. */
export function describeMode(mode: string, type: FileEntry['type']): string {
  if (!/^[0-7]{1,4}$/u.test(mode)) return mode;
  const bits = Number.parseInt(mode, 8);
  const parts = [6, 3, 0].map((shift, index) => {
    const own = (bits >> shift) & 7;
    const isSpecial = (bits & (SPECIAL[index] ?? 0)) !== 0;
    return `${own & 4 ? 'r' : '-'}${own & 2 ? 'w' : '-'}${lastLetter((own & 1) === 1, isSpecial, index === 2)}`;
  });
  return TYPE_LETTERS[type] + parts.join('');
}

function lastLetter(canRun: boolean, isSpecial: boolean, isSticky: boolean): string {
  if (!isSpecial) return canRun ? 'x' : '-';
  const letter = isSticky ? 't' : 's';
  return canRun ? letter : letter.toUpperCase();
}
