import { existsSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { compareVersions } from './version.mjs';

/**
 * @param {string} pattern path with at most one `*`, which stands for a version
 * @returns {string[]} existing directories, newest version first
 */
export function expandPattern(pattern) {
  const [before, after] = pattern.split('*');
  if (before === undefined || after === undefined) return [pattern];
  const parent = dirname(`${before}x`);
  if (!existsSync(parent)) return [];
  return readdirSync(parent)
    .map((name) => join(parent, name))
    .filter((path) => path.startsWith(before) && /^\d/.test(path.slice(before.length)))
    .sort((a, b) => compareVersions(b.slice(before.length), a.slice(before.length)))
    .map((path) => path + after);
}
