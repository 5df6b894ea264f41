/**
 * Copies out of a sandbox. The guest is hostile: its names, types and links must not write outside the destination. Names are
 * single components, no link is followed below the destination, and a link that leads out of the copied tree is left out.
 */
import { randomBytes } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { chmod, lstat, mkdir, realpath, rename, rm, stat, symlink } from 'node:fs/promises';
import { dirname, join, posix } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { FileEntry, Sandbox } from '../../../sdk/src/index.ts';
import { Failure } from '../output/failure.ts';
import { counted, type CopyProgress } from './copy-progress.ts';
import { eachOf } from './each-of.ts';
import { joinPath, lastName, meansContent } from './place.ts';
import { findFile } from './sandbox-file.ts';

const LANES = 4;
const PERMISSIONS = 0o777;
const DEFAULT_MODE = 0o666;
const NEW_FILE = 0o600;
const MAX_DEPTH = 100;
const MAX_ENTRIES = 1_000_000;

interface RemoteFile {
  remote: string;
  local: string;
  mode: number | undefined;
}

/** Outcome of a download. */
export interface DownloadReport {
  /** Path of the copy. */
  path: string;
  /** Paths in the sandbox that were left out, with the reason. */
  skipped: string[];
}

/** Copies a file or directory of a sandbox to this machine. */
export async function download(
  sandbox: Sandbox,
  { from, to, progress }: { from: string; to: string; progress: CopyProgress },
): Promise<DownloadReport> {
  const isInside =
    !meansContent(from) &&
    (to.endsWith('/') || (await stat(to).catch(() => undefined))?.isDirectory() === true);
  const path = isInside ? join(to, lastName(from)) : to;
  const tree = new TreeDownload(sandbox, progress);
  const entry = await findFile(sandbox, from, { signal: progress.signal });
  if (entry?.type === 'dir') {
    await tree.run(from, path);
    return { path, skipped: tree.skipped };
  }
  // The mode of a link is that of no file.
  const mode = entry?.type === 'file' ? parseMode(entry.mode) : undefined;
  await downloadFile(sandbox, { remote: from, local: path, mode }, progress);
  return { path, skipped: [] };
}

/** Copies a file of a sandbox to standard output. */
export async function downloadToStdout(
  sandbox: Sandbox,
  from: string,
  progress: CopyProgress,
): Promise<void> {
  const stream = counted(await sandbox.downloadStream(from, { signal: progress.signal }), progress);
  await pipeline(toNode(stream), process.stdout, { end: false });
  progress.addFile();
}

class TreeDownload {
  readonly skipped: string[] = [];
  readonly #sandbox: Sandbox;
  readonly #progress: CopyProgress;
  #entries = 0;

  constructor(sandbox: Sandbox, progress: CopyProgress) {
    this.#sandbox = sandbox;
    this.#progress = progress;
  }

  async run(from: string, to: string): Promise<void> {
    // The user chose the destination itself, so it may be a link.
    await mkdir(to, { recursive: true });
    const files = this.#walk({ remote: from, local: to, inTree: '' }, 0);
    await eachOf(files, {
      lanes: LANES,
      work: (file) => downloadFile(this.#sandbox, file, this.#progress),
      onFailure: (error) => this.#progress.abort(error),
    });
  }

  async *#walk(
    place: { remote: string; local: string; inTree: string },
    depth: number,
  ): AsyncGenerator<RemoteFile> {
    if (depth > MAX_DEPTH) throw new Failure(`${place.remote}: directories are nested too deeply`);
    for await (const entry of this.#sandbox.listFiles(place.remote, { signal: this.#progress.signal })) {
      if ((this.#entries += 1) > MAX_ENTRIES) throw new Failure(`${place.remote}: there are too many files`);
      const name = requireName(entry.name);
      const [remote, local] = [joinPath(place.remote, name), join(place.local, name)];
      const inTree = posix.join(place.inTree, name);
      if (entry.type === 'file') yield { remote, local, mode: parseMode(entry.mode) };
      else if (entry.type === 'symlink') await this.#link(entry, { remote, local, inTree });
      else if (entry.type === 'dir') {
        await makeDirectory(local);
        yield* this.#walk({ remote, local, inTree }, depth + 1);
      } else this.skipped.push(`${remote}: not a file`);
    }
  }

  async #link(
    { target }: FileEntry,
    { remote, local, inTree }: { remote: string; local: string; inTree: string },
  ): Promise<void> {
    if (target === null || !staysInside(inTree, target)) {
      this.skipped.push(`${remote}: the link leads out of the directory`);
      return;
    }
    if ((await lstat(local).catch(() => undefined))?.isDirectory() === true)
      throw new Failure(
        `${local} is a directory, and the sandbox has a link of this name: remove it, or copy to another place`,
      );
    await rm(local, { force: true });
    await symlink(target, local);
  }
}

/**
 * Returns whether a link at `inTree`, a path relative to the tree, leads to a place in the tree. A `..` after a name counts as
 * out: the name may be another link, whose parent is elsewhere.
 */
export function staysInside(inTree: string, target: string): boolean {
  if (target === '' || target.startsWith('/') || target.includes('\0')) return false;
  const parts = target.split('/').filter((part) => part !== '' && part !== '.');
  const ups = parts.findIndex((part) => part !== '..');
  if (ups !== -1 && parts.slice(ups).includes('..')) return false;
  const depth = inTree.split('/').length - 1;
  return (ups === -1 ? parts.length : ups) <= depth;
}

/** Throws Failure for a name that is a path, or no name at all. */
export function requireName(name: string): string {
  const isName = name !== '' && name !== '.' && name !== '..' && !/[/\0]/u.test(name);
  if (isName) return name;
  throw new Failure(
    `the sandbox lists a file with the name "${name}", which is not one: nothing more is copied`,
  );
}

/** Makes a directory unless there is one. A link to a directory, which an earlier copy may have made, is refused. */
async function makeDirectory(path: string): Promise<void> {
  try {
    await mkdir(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    if (!(await lstat(path)).isDirectory())
      throw new Failure(`${path} exists and is not a directory: remove it, or copy to another place`);
  }
}

/** Writes a file beside its place and moves it there: it appears complete, and a link in its place is replaced. */
async function downloadFile(
  sandbox: Sandbox,
  { remote, local, mode }: RemoteFile,
  progress: CopyProgress,
): Promise<void> {
  await requireReplaceable(local);
  const stream = await sandbox.downloadStream(remote, { signal: progress.signal });
  // Without the name of the file: that may have the greatest length already.
  const next = join(dirname(local), `.coppice-${randomBytes(12).toString('hex')}`);
  try {
    const file = createWriteStream(next, { flags: 'wx', mode: NEW_FILE });
    await pipeline(toNode(counted(stream, progress)), file);
    // The guest chooses the mode: the umask keeps other users out, as for files that the user makes.
    await chmod(next, (mode ?? DEFAULT_MODE) & ~process.umask());
    await rename(next, local);
  } catch (error) {
    await rm(next, { force: true });
    throw error;
  }
  progress.addFile();
}

/** Throws Failure unless the place is free, or has a file or a link. A rename would replace a device or a pipe, too. */
async function requireReplaceable(local: string): Promise<void> {
  const found = await lstat(local).catch(() => undefined);
  if (found === undefined || found.isFile()) return;
  if (found.isSymbolicLink() && !(await isSpecialDirectory(dirname(local)))) return;
  throw new Failure(
    found.isDirectory()
      ? `${local} is a directory, and the sandbox has a file of this name: remove it, or copy to another place`
      : `${local} is neither a file nor a link, and is not replaced: copy to "-" and redirect that, or to another place`,
  );
}

/** Links such as `/dev/stdout` stand for open files. */
async function isSpecialDirectory(path: string): Promise<boolean> {
  return /^\/(?:dev$|proc\/)/u.test(await realpath(path));
}

function toNode(stream: ReadableStream<Uint8Array<ArrayBuffer>>): Readable {
  return Readable.fromWeb(stream);
}

function parseMode(text: string): number | undefined {
  return /^[0-7]{1,5}$/u.test(text) ? Number.parseInt(text, 8) & PERMISSIONS : undefined;
}
