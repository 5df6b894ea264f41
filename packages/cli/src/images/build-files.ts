/** The files of this machine that a build needs. All are checked before anything is sent. */
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { Failure } from '../output/failure.ts';
import { IgnoreRules, parseIgnoreFile } from './ignore-file.ts';

/** The service refuses a longer one. */
const MAX_DOCKERFILE_BYTES = 256 << 10;

export interface BuildFiles {
  dockerfile: string;
  rules: IgnoreRules;
}

/**
 * Reads the Dockerfile, by default that of the directory, and its rules for the context. As in Docker, a file beside the Dockerfile with
 * its name and `.dockerignore` takes the place of the `.dockerignore` of the directory. Throws Failure.
 */
export async function readBuildFiles(directory: string, file: string | undefined): Promise<BuildFiles> {
  const found = await stat(directory).catch(unlessMissing);
  if (found?.isDirectory() !== true) throw new Failure(`${directory} is not a directory`);
  const path = file ?? join(directory, 'Dockerfile');
  const dockerfile = await readText(path);
  if (dockerfile === undefined) throw new Failure(`there is no ${path}: name the Dockerfile with --file`);
  if (dockerfile.trim() === '') throw new Failure(`${path} is empty`);
  const bytes = Buffer.byteLength(dockerfile);
  if (bytes > MAX_DOCKERFILE_BYTES)
    throw new Failure(
      `${path} has ${bytes} bytes, at most ${MAX_DOCKERFILE_BYTES} are allowed: copy long scripts from the context`,
    );
  return { dockerfile, rules: await readRules([`${path}.dockerignore`, join(directory, '.dockerignore')]) };
}

/** Reads the first of these files that exists. */
async function readRules(paths: readonly string[]): Promise<IgnoreRules> {
  for (const path of paths) {
    const text = await readText(path);
    if (text !== undefined) return parseIgnoreFile(text, path);
  }
  return new IgnoreRules([]);
}

async function readText(path: string): Promise<string | undefined> {
  return readFile(path, 'utf8').catch(unlessMissing);
}

function unlessMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}
