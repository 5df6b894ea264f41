import { createReadStream } from 'node:fs';
import { lstat, readdir, readlink, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import type { Sandbox } from '../../../sdk/src/index.ts';
import { quote } from '../attach/command-line.ts';
import { Failure, UsageError } from '../output/failure.ts';
import { counted, type CopyProgress } from './copy-progress.ts';
import { eachOf } from './each-of.ts';
import { joinPath, lastName, meansContent } from './place.ts';
import { isDirectory } from './sandbox-file.ts';

const LANES = 4;
const PERMISSIONS = 0o777;
/** Links are made by commands of limited length. */
const MAX_COMMAND_LENGTH = 32_768;

interface LocalFile {
  local: string;
  remote: string;
  mode: number;
}

/** Copies a local file or directory into a sandbox. Returns its path there. */
export async function upload(
  sandbox: Sandbox,
  { from, to, progress }: { from: string; to: string; progress: CopyProgress },
): Promise<string> {
  const found = await stat(from).catch((error: unknown) => {
    throw new Failure(`${from} cannot be read: ${(error as Error).message}`);
  });
  const isInside = !meansContent(from) && (to.endsWith('/') || (await isDirectory(sandbox, to, progress)));
  const target = isInside ? joinPath(to, lastName(from)) : to;
  if (found.isFile())
    await uploadFile(sandbox, { local: from, remote: target, mode: found.mode & PERMISSIONS }, progress);
  else if (found.isDirectory()) await new TreeUpload(sandbox, progress).run(from, target);
  else throw new UsageError(`${from} is neither a file nor a directory`);
  return target;
}

/** Copies standard input into a file of a sandbox. */
export async function uploadStream(
  sandbox: Sandbox,
  { to, progress }: { to: string; progress: CopyProgress },
): Promise<string> {
  await sandbox.upload(to, counted(toWeb(process.stdin), progress), { signal: progress.signal });
  progress.addFile();
  return to;
}

/** Copies a tree. Files carry their permissions. The service has no call for symbolic links: a shell in the guest makes them. */
class TreeUpload {
  readonly #sandbox: Sandbox;
  readonly #progress: CopyProgress;
  /** Commands that make links. */
  readonly #commands: string[] = [];

  constructor(sandbox: Sandbox, progress: CopyProgress) {
    this.#sandbox = sandbox;
    this.#progress = progress;
  }

  async run(from: string, to: string): Promise<void> {
    await eachOf(this.#walk(from, to), {
      lanes: LANES,
      work: (file) => uploadFile(this.#sandbox, file, this.#progress),
      onFailure: (error) => this.#progress.abort(error),
    });
    for (const batch of joinCommands(this.#commands)) await this.#exec(batch);
  }

  async *#walk(local: string, remote: string): AsyncGenerator<LocalFile> {
    const names = await readdir(local);
    if (names.length === 0) await this.#sandbox.files.mkdir(remote, { signal: this.#progress.signal });
    for (const name of names) {
      const [path, target] = [join(local, name), joinPath(remote, name)];
      const found = await lstat(path);
      if (found.isDirectory()) yield* this.#walk(path, target);
      else if (found.isFile()) yield { local: path, remote: target, mode: found.mode & PERMISSIONS };
      else if (found.isSymbolicLink()) {
        const link = `${quote(await readlink(path))} ${quote(target)}`;
        this.#commands.push(`mkdir -p -- ${quote(remote)} && ln -sfn -- ${link}`);
      } else
        throw new Failure(`${path} is neither a file, a directory nor a link: remove it or copy the others`);
    }
  }

  async #exec(commands: string): Promise<void> {
    const { exitCode, stderr } = await this.#sandbox.exec(commands, { signal: this.#progress.signal });
    if (exitCode !== 0) throw new Failure(`the sandbox could not make symbolic links: ${stderr.trim()}`);
  }
}

async function uploadFile(
  sandbox: Sandbox,
  { local, remote, mode }: LocalFile,
  progress: CopyProgress,
): Promise<void> {
  await sandbox.upload(remote, counted(toWeb(createReadStream(local)), progress), {
    mode,
    signal: progress.signal,
  });
  progress.addFile();
}

function toWeb(stream: Readable): ReadableStream<Uint8Array<ArrayBuffer>> {
  return Readable.toWeb(stream);
}

/** Joins commands into batches that a request can carry. */
export function joinCommands(commands: readonly string[]): string[] {
  const batches: string[] = [];
  for (const command of commands) {
    const last = batches.at(-1);
    if (last !== undefined && last.length + command.length < MAX_COMMAND_LENGTH)
      batches[batches.length - 1] = `${last} && ${command}`;
    else batches.push(command);
  }
  return batches;
}
