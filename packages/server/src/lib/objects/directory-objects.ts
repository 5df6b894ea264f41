/**
 * Objects in a directory: one file per object, at the path that its key spells. An object is written to a separate
 * directory, synced, and then put in place by one rename (or one link, which fails if the place is taken). So no reader
 * sees a partial object, also after a crash of the host. As in any directory, `a` and `a/b` cannot both exist.
 */
import { randomBytes } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { link, mkdir, open, readdir, rename, rm, stat, unlink } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import {
  objectNotFound,
  requireObjectKey,
  type ByteRange,
  type ObjectContent,
  type ObjectInfo,
  type ObjectStore,
} from './object-store.ts';
import { syncLater } from '../files/durable-file.ts';

/** Directory of unfinished objects. No key begins with a dot. */
const INCOMING = '.incoming';
const FILE_MODE = 0o600;
const DIRECTORY_MODE = 0o700;

export class DirectoryObjects implements ObjectStore {
  readonly #root: string;

  private constructor(root: string) {
    this.#root = root;
  }

  /** Creates the directory and removes half-written files of an earlier process. No other process may use it. */
  static async open(root: string): Promise<DirectoryObjects> {
    await rm(join(root, INCOMING), { recursive: true, force: true });
    await mkdir(join(root, INCOMING), { recursive: true, mode: DIRECTORY_MODE });
    await syncLater(dirname(root));
    return new DirectoryObjects(root);
  }

  async put(key: string, content: ObjectContent): Promise<void> {
    await this.#place(key, content, rename);
  }

  async putIfAbsent(key: string, content: ObjectContent): Promise<boolean> {
    try {
      await this.#place(key, content, link);
      return true;
    } catch (error) {
      if (codeOf(error) === 'EEXIST') return false;
      throw error;
    }
  }

  async *get(key: string, range?: ByteRange): AsyncGenerator<Uint8Array> {
    const path = this.#pathOf(key);
    if (range?.end !== undefined && range.end <= range.start) return;
    const part =
      range === undefined
        ? {}
        : { start: range.start, ...(range.end === undefined ? {} : { end: range.end - 1 }) };
    try {
      yield* createReadStream(path, part) as AsyncIterable<Buffer>;
    } catch (error) {
      throw isAbsence(error) ? objectNotFound(key) : error;
    }
  }

  async *list(prefix: string): AsyncGenerator<ObjectInfo> {
    yield* this.#walk(this.#root, prefix);
  }

  async delete(key: string): Promise<void> {
    const path = this.#pathOf(key);
    try {
      await unlink(path);
      await syncLater(dirname(path));
    } catch (error) {
      if (!isAbsence(error)) throw error;
    }
  }

  async #place(
    key: string,
    content: ObjectContent,
    move: (from: string, to: string) => Promise<void>,
  ): Promise<void> {
    const path = this.#pathOf(key);
    const incoming = join(this.#root, INCOMING, randomBytes(16).toString('hex'));
    try {
      await writeSynced(incoming, content);
      await this.#ensureDirectory(dirname(path));
      await move(incoming, path);
      await syncLater(dirname(path));
    } finally {
      await rm(incoming, { force: true });
    }
  }

  /** Creates the directory and its parents, and syncs each new one's parent before anything is put into it. */
  async #ensureDirectory(path: string): Promise<void> {
    const first = await mkdir(path, { recursive: true, mode: DIRECTORY_MODE });
    if (first === undefined) return;
    for (let made = path; made.length >= first.length; made = dirname(made)) await syncLater(dirname(made));
  }

  async *#walk(directory: string, prefix: string): AsyncGenerator<ObjectInfo> {
    const entries = await readdir(directory, { withFileTypes: true });
    // Sorted like whole keys, in which a slash follows the name of a directory.
    const names = entries.map((entry) => ({
      entry,
      name: entry.isDirectory() ? `${entry.name}/` : entry.name,
    }));
    for (const { entry, name } of names.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = join(directory, entry.name);
      const key = join(relative(this.#root, directory), name);
      if (entry.name === INCOMING) continue;
      if (entry.isDirectory()) {
        if (key.startsWith(prefix) || prefix.startsWith(key)) yield* this.#walk(path, prefix);
      } else if (key.startsWith(prefix)) yield { key, sizeBytes: (await stat(path)).size };
    }
  }

  #pathOf(key: string): string {
    return join(this.#root, requireObjectKey(key));
  }
}

async function writeSynced(path: string, content: ObjectContent): Promise<void> {
  const file = await open(path, 'wx', FILE_MODE);
  try {
    for await (const piece of content) await file.writeFile(piece);
    await file.sync();
  } finally {
    await file.close();
  }
}

function isAbsence(error: unknown): boolean {
  return codeOf(error) === 'ENOENT' || codeOf(error) === 'ENOTDIR';
}

function codeOf(error: unknown): unknown {
  return error instanceof Error ? Reflect.get(error, 'code') : undefined;
}
