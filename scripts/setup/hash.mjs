import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { pipeline } from 'node:stream/promises';

/**
 * @param {unknown} recipe any JSON value; the order of keys matters
 * @returns {string} 16 hex digits of its SHA-256, for the name of a directory
 */
export function recipeHash(recipe) {
  return createHash('sha256').update(JSON.stringify(recipe)).digest('hex').slice(0, 16);
}

/**
 * @param {string} path
 * @returns {Promise<string>} SHA-256 in hex; the file is read as a stream, because layers have hundreds of MB
 */
export async function fileHash(path) {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}

/**
 * @param {string} directory
 * @param {(path: string) => boolean} accept relative path
 * @returns {Promise<string>} SHA-256 over names and contents
 */
export async function sourceHash(directory, accept) {
  const hash = createHash('sha256');
  for (const path of (await listFiles(directory, NOT_SOURCES))
    .map((file) => relative(directory, file))
    .filter(accept)
    .sort()) {
    const content = await readFile(join(directory, path));
    hash.update(`${path}\0${content.length}\0`).update(content);
  }
  return hash.digest('hex');
}

const NOT_SOURCES = new Set(['node_modules', 'dist', '.git', 'bin']);

/**
 * @param {string} directory
 * @param {ReadonlySet<string>} [skipped] names of directories that are not entered
 * @returns {Promise<string[]>} regular files below it, sorted
 */
export async function listFiles(directory, skipped = new Set()) {
  /** @type {string[]} */
  const files = [];
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) {
      if (!skipped.has(entry.name)) files.push(...(await listFiles(path, skipped)));
    } else if (entry.isFile()) files.push(path);
  }
  return files.sort();
}
