/**
 * The graph of a persistent disk in memory, in place of QEMU's. QEMU's tools write its top overlay and read all of it, so
 * the files are as QEMU leaves them.
 */
import { execFile } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { overlayName } from '../../vm/vm-files.ts';
import {
  BLOCK_SOCKET,
  type WorkspaceDevice,
  type WorkspaceDirectories,
  type WorkspaceSource,
  type WorkspaceVersion,
} from '../../vm/workspace-device.ts';

const run = promisify(execFile);

export class OverlayGraph implements WorkspaceDevice {
  readonly #directories: WorkspaceDirectories;
  readonly #open = new Set<number>();
  readonly #versions = new Map<number, string>();
  /** Overlays of the disk, the top last, and the version below them. */
  #chain: number[] = [];
  #base = 0;
  sizeBytes = 0;
  /** Runs before and after each operation; an error that it throws is that of the operation. */
  around: (operation: string, isDone: boolean) => void | Promise<void> = () => undefined;

  constructor(directories: WorkspaceDirectories) {
    this.#directories = directories;
  }

  get chain(): readonly number[] {
    return this.#chain;
  }

  list(): Promise<{ overlays: number[]; versions: number[]; top: number | undefined }> {
    return this.#do('list', () => ({
      overlays: [...this.#open].toSorted((a, b) => a - b),
      versions: [...this.#versions.keys()].toSorted((a, b) => a - b),
      top: this.#chain.at(-1),
    }));
  }

  attach({ version, overlay, sizeBytes }: WorkspaceSource): Promise<void> {
    return this.#do('attach', () => {
      this.#versions.set(version.number, version.exportName);
      this.#open.add(overlay);
      [this.#chain, this.#base, this.sizeBytes] = [[overlay], version.number, sizeBytes];
    });
  }

  open(overlay: number): Promise<void> {
    return this.#do('open', () => void this.#open.add(overlay));
  }

  push(overlay: number): Promise<void> {
    return this.#do('push', () => {
      if (!this.#open.has(overlay)) throw new Error(`overlay ${overlay} is not open`);
      if (this.#chain.at(-1) !== overlay) this.#chain.push(overlay);
    });
  }

  rebase(overlay: number, { number, exportName }: WorkspaceVersion): Promise<void> {
    return this.#do('rebase', () => {
      const index = this.#chain.indexOf(overlay);
      if (index < 0) throw new Error(`overlay ${overlay} is not part of the disk`);
      this.#versions.set(number, exportName);
      this.#chain = this.#chain.slice(index);
      this.#base = number;
    });
  }

  closeOverlay(overlay: number): Promise<void> {
    return this.#do('closeOverlay', () => {
      if (this.#chain.includes(overlay)) throw new Error(`overlay ${overlay} is in use`);
      this.#open.delete(overlay);
    });
  }

  closeVersion(version: number): Promise<void> {
    return this.#do('closeVersion', () => {
      if (version === this.#base) throw new Error(`version ${version} is in use`);
      this.#versions.delete(version);
    });
  }

  grow(sizeBytes: number): Promise<void> {
    return this.#do('grow', async () => {
      await run('qemu-img', ['resize', '-q', '-f', 'qcow2', this.#pathOf(this.#top), String(sizeBytes)]);
      this.sizeBytes = sizeBytes;
    });
  }

  /** Fills a range with a byte, as a guest does. Offset and length are multiples of 4096. */
  async write(offset: number, length: number, byte: number): Promise<void> {
    const command = `write -P ${byte} ${offset} ${length}`;
    await run('qemu-io', ['-f', 'qcow2', '-c', command, this.#pathOf(this.#top)]);
  }

  /** Returns all that the guest reads. */
  async read(): Promise<Buffer> {
    const target = join(this.#directories.overlayDirectory, '..', 'content');
    await run('qemu-img', ['convert', '-O', 'raw', `json:${JSON.stringify(this.#describe())}`, target]);
    const content = readFileSync(target);
    rmSync(target);
    return content;
  }

  /** Describes the disk as QEMU's tools take it. */
  #describe(): object {
    const exportName = this.#versions.get(this.#base);
    const server = { type: 'unix', path: join(this.#directories.serverDirectory, BLOCK_SOCKET) };
    return this.#chain.reduce<object>(
      (backing, overlay) => ({
        driver: 'qcow2',
        file: { driver: 'file', filename: this.#pathOf(overlay), locking: 'off' },
        backing,
      }),
      { driver: 'nbd', server, export: exportName },
    );
  }

  async #do<T>(operation: string, work: () => T | Promise<T>): Promise<T> {
    await this.around(operation, false);
    const result = await work();
    await this.around(operation, true);
    return result;
  }

  get #top(): number {
    const top = this.#chain.at(-1);
    if (top === undefined) throw new Error('there is no disk');
    return top;
  }

  #pathOf(overlay: number): string {
    return join(this.#directories.overlayDirectory, overlayName(overlay));
  }
}
