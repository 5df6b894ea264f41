/** Reads a file of a package client out of the distribution's package, without installing it. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { findCandidate, unpackPackage, updateOnce } from '../packages/apt.mjs';
import { listFiles } from '../hash.mjs';
import { assetsDirectory, findExecutable } from '../paths.mjs';

const TIMEOUT_MS = 2 * 60_000;

/**
 * @param {{ name: string, file: RegExp }} wanted  name of the package, and a pattern for the path of its file
 * @returns {Promise<Buffer | undefined>} undefined if there is no such package or file
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
 * Unpacks a package and, if it lacks the file, the package with a versioned name that it depends on (Ubuntu's cargo).
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
