import { existsSync } from 'node:fs';
import { readFile, rename, writeFile } from 'node:fs/promises';

/**
 * Writes a file that all users may read, atomically.
 * @param {string} path
 * @param {unknown} value
 * @returns {Promise<boolean>} false if the file already has this content
 */
export async function writeJson(path, value) {
  const text = `${JSON.stringify(value, null, 2)}\n`;
  if (existsSync(path) && (await readFile(path, 'utf8')) === text) return false;
  await writeFile(`${path}.new`, text, { mode: 0o644, flush: true });
  await rename(`${path}.new`, path);
  return true;
}
