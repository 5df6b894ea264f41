/**
 * Saved VMs on disk. A capture is complete as soon as it has its name:
 *
 *   <directory>/<id>/manifest.json, devices            of its own
 *                    ram                               of its own; VMs that continue from it map it privately
 *                    image.squashfs, base.ext4, disk/  shared with VMs and other captures, as hard links
 *   <directory>/<anything>.partial/                    being made or removed; swept at the next start
 *
 * Nothing in a capture ever changes. VMs made from it have their own links, so it can be deleted while they run.
 */
import { randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { syncLater } from '../../lib/files/durable-file.ts';
import type { CaptureInfo } from '../../lib/protocol/runner-protocol.ts';
import { VmDirectory } from '../disk/vm-directory.ts';
import { DEVICES_NAME, overlayName } from '../vm/vm-files.ts';
import { MANIFEST_NAME, readManifest, writeManifest, type CaptureManifest } from './capture-manifest.ts';
import { sumFiles } from './memory-writer.ts';

const PARTIAL = '.partial';

export interface CaptureStoreOptions {
  directory: string;
  /** The program that computes digests. */
  program: string;
  /** Called after the files of a capture, complete or not, are gone: the image cache may free what they linked to. */
  onRemoved: () => void;
  log: Logger;
}

export interface CaptureFiles {
  directory: VmDirectory;
  statePath: string;
  /** Paths of the frozen overlays, lowest first. */
  overlays: string[];
}

interface Entry {
  /** Undefined if it cannot be read. Such a capture can only be deleted. */
  manifest: CaptureManifest | undefined;
  /** Inodes, sizes and times of the files when they were last known to be intact. */
  verified: string | undefined;
  /** The running verification, shared by concurrent users. */
  verifying: Promise<CaptureManifest> | undefined;
  users: number;
}

export class CaptureStore {
  readonly #directory: string;
  readonly #program: string;
  readonly #onRemoved: () => void;
  readonly #entries = new Map<string, Entry>();

  private constructor({ directory, program, onRemoved }: Omit<CaptureStoreOptions, 'log'>) {
    this.#directory = directory;
    this.#program = program;
    this.#onRemoved = onRemoved;
  }

  /** Reads the captures and removes unfinished ones. */
  static open({ log, ...options }: CaptureStoreOptions): CaptureStore {
    const { directory } = options;
    mkdirSync(directory, { recursive: true, mode: 0o711 });
    const store = new CaptureStore(options);
    for (const name of readdirSync(directory)) {
      const path = join(directory, name);
      if (name.endsWith(PARTIAL)) rmSync(path, { recursive: true, force: true });
      else
        store.#entries.set(name, {
          manifest: tryRead(path, log),
          verified: undefined,
          verifying: undefined,
          users: 0,
        });
    }
    return store;
  }

  list(): CaptureInfo[] {
    return [...this.#entries.values()].flatMap(({ manifest }) => manifest?.info ?? []);
  }

  /** Keys of the machines that the captures need. */
  get machineKeys(): string[] {
    return [...this.#entries.values()].flatMap(({ manifest }) => manifest?.machine ?? []);
  }

  find(id: string): CaptureInfo | undefined {
    return this.#entries.get(id)?.manifest?.info;
  }

  /** Directory of a capture, whether it exists or not. */
  directoryOf(id: string): string {
    return join(this.#directory, id);
  }

  /** Also of a capture that cannot be read, and so can only be deleted. */
  has(id: string): boolean {
    return this.#entries.has(id);
  }

  isInUse(id: string): boolean {
    return (this.#entries.get(id)?.users ?? 0) > 0;
  }

  /** Creates a directory for a new capture. Disposing the result removes it, unless it was published. */
  begin(): AsyncDisposable & { path: string } {
    const path = join(this.#directory, `${randomBytes(8).toString('hex')}${PARTIAL}`);
    mkdirSync(path, { mode: 0o711 });
    return { path, [Symbol.asyncDispose]: () => this.#erase(path) };
  }

  /** Syncs the files that the memory writer has not synced, and returns their digests. */
  async seal(path: string): Promise<CaptureManifest['files']> {
    const { scratchBase, overlays } = new VmDirectory(path);
    const names = [DEVICES_NAME, ...listOverlays(path)];
    for (const file of [...names.map((name) => join(path, name)), scratchBase, overlays])
      await syncLater(file);
    return this.#sumNames(path, names);
  }

  /**
   * Gives a capture its name. When this resolves it survives the death of this process and of the machine. With `isTrusted`
   * its files are known to be those of the manifest; otherwise its first use verifies them.
   */
  async publish(path: string, manifest: CaptureManifest, { isTrusted = true } = {}): Promise<void> {
    await writeManifest(path, manifest);
    const { id } = manifest.info;
    const target = join(this.#directory, id);
    renameSync(path, target);
    await syncLater(this.#directory);
    const verified = isTrusted ? describe(target, manifest) : undefined;
    this.#entries.set(id, { manifest, verified, verifying: undefined, users: 0 });
  }

  /**
   * Uses a capture, which is not deleted meanwhile. Throws `not_found`, or `snapshot_unusable` if a file has changed
   * since it was saved.
   */
  async use<T>(id: string, work: (files: CaptureFiles, manifest: CaptureManifest) => Promise<T>): Promise<T> {
    const entry = this.#entries.get(id);
    if (entry === undefined) throw new AppError('not_found', `there is no snapshot ${id}`);
    entry.users += 1;
    try {
      const path = join(this.#directory, id);
      entry.verifying ??= this.#verify(path, entry).finally(() => (entry.verifying = undefined));
      return await work(filesOf(path), await entry.verifying);
    } finally {
      entry.users -= 1;
    }
  }

  /** Throws `not_found`, or `invalid_state` while the capture is in use. */
  assertUnused(id: string): void {
    const entry = this.#entries.get(id);
    if (entry === undefined) throw new AppError('not_found', `there is no snapshot ${id}`);
    if (entry.users > 0)
      throw new AppError('invalid_state', `the snapshot ${id} is being restored; delete it afterwards`);
  }

  /** Deletes a capture. Throws `not_found`, or `invalid_state` while the capture is in use. */
  async remove(id: string): Promise<void> {
    this.assertUnused(id);
    const trash = join(this.#directory, `${id}${PARTIAL}`);
    renameSync(join(this.#directory, id), trash);
    // Only now: a capture that could not be moved still exists and is listed.
    this.#entries.delete(id);
    await syncLater(this.#directory);
    await this.#erase(trash);
  }

  async #erase(path: string): Promise<void> {
    await rm(path, { recursive: true, force: true, maxRetries: 5 });
    this.#onRemoved();
  }

  /**
   * Verifies a capture. Reads the files only if one has changed since the last check: that takes as long as the disk.
   */
  async #verify(path: string, entry: Entry): Promise<CaptureManifest> {
    if (entry.manifest !== undefined && describe(path, entry.manifest) === entry.verified)
      return entry.manifest;
    entry.verified = undefined;
    const manifest = readManifest(path);
    const described = describe(path, manifest);
    for (const [name, { sizeBytes, digest }] of Object.entries(manifest.files)) {
      const found = await this.#sumNames(path, [name]).catch((error: unknown) => {
        throw damaged(`${name} cannot be read`, error);
      });
      if (found[name]?.digest !== digest || found[name].sizeBytes !== sizeBytes)
        throw damaged(`${name} is not as it was saved`);
    }
    entry.manifest = manifest;
    entry.verified = described;
    return manifest;
  }

  async #sumNames(path: string, names: readonly string[]): Promise<CaptureManifest['files']> {
    const paths = new Map(names.map((name) => [join(path, name), name]));
    const sums = await sumFiles(this.#program, [...paths.keys()]);
    return Object.fromEntries([...sums].map(([file, sum]) => [paths.get(file) ?? file, sum]));
  }
}

export function filesOf(path: string): CaptureFiles {
  return {
    directory: new VmDirectory(path),
    statePath: join(path, DEVICES_NAME),
    overlays: listOverlays(path).map((name) => join(path, name)),
  };
}

function listOverlays(path: string): string[] {
  const { overlays } = new VmDirectory(path);
  return readdirSync(overlays).map((_, number) => join('disk', overlayName(number)));
}

function damaged(how: string, cause?: unknown): AppError {
  return new AppError('snapshot_unusable', `the snapshot is damaged: ${how}`, { cause });
}

/** Returns a text that changes when a file is written or lost. */
function describe(path: string, manifest: CaptureManifest): string {
  return [MANIFEST_NAME, ...Object.keys(manifest.files)]
    .map((name) => {
      const found = statSync(join(path, name), { bigint: true, throwIfNoEntry: false });
      return `${name} ${found?.ino} ${found?.size} ${found?.mtimeNs}`;
    })
    .join('\n');
}

function tryRead(path: string, log: Logger): CaptureManifest | undefined {
  try {
    return readManifest(path);
  } catch (error) {
    log.error({ err: error, path }, 'a capture cannot be read; it can only be deleted');
    return undefined;
  }
}
