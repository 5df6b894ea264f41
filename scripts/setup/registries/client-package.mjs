/** A package client that is not installed, read out of the distribution's package of it. It is not installed by that. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { findCandidate, unpackPackage, updateOnce } from '../apt.mjs';
import { listFiles } from '../hash.mjs';
import { assetsDirectory, findExecutable } from '../paths.mjs';

const TIMEOUT_MS = 2 * 60_000;

/**
 * @param {{ name: string, file: RegExp }} wanted  the package, and what its file's path ends with
 * @returns {Promise<Buffer | undefined>} undefined where there is no such package
 */
export async function readFromPackage({ name, file }) {
  if (findExecutable('apt-get') === undefined) return undefined;
  const directory = await mkdtemp(join(assetsDirectory(), '.client-'));
  try {
    const path = await unpackUntil(name, file, directory);
    return path === undefined ? undefined : await readFile(path);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/**
 * A package without the file may depend on one of the same name with a version (Ubuntu's cargo).
 * @param {string} name
 * @param {RegExp} file
 * @param {string} directory
 * @returns {Promise<string | undefined>} path of the file
 */
async function unpackUntil(name, file, directory) {
  const candidate = await findPackage(name);
  if (candidate === undefined) return undefined;
  await unpackPackage({ name, version: candidate.version }, directory, { timeoutMs: TIMEOUT_MS });
  const found = (await listFiles(directory)).find((path) => file.test(path));
  if (found !== undefined) return found;
  const names = candidate.depends.split(/\s*[,|]\s*/u).map((each) => each.split(' ', 1)[0] ?? '');
  const versioned = names.find((each) => each.startsWith(`${name}-`) && /\d$/u.test(each));
  return versioned === undefined ? undefined : unpackUntil(versioned, file, directory);
}

/** @param {string} name */
async function findPackage(name) {
  const known = await findCandidate(name);
  if (known !== undefined) return known;
  await updateOnce();
  return findCandidate(name);
}
