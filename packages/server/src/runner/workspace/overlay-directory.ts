/**
 * The files of one attached disk:
 *
 *   <workspaces>/<unit>/disk.json               record (attachment-record.ts)
 *                       overlays/<number>.qcow2 the highest is the top, which the VM writes; the others are sealed
 *
 * Every VM has the directory of overlays, because its jail is fixed when it starts. It outlives the VM while it holds data
 * that is not in the object store.
 */
import { existsSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { syncLater } from '../../lib/files/durable-file.ts';
import { freezeFile } from '../disk/vm-directory.ts';
import { EMPTY_WORKSPACE_BYTES, makeWorkspaceOverlay } from '../disk/overlay-file.ts';
import { findAllocatedBytes } from '../host/allocated-bytes.ts';
import { overlayName } from '../vm/vm-files.ts';
import { writeAttachmentRecordLater, type AttachmentRecord } from './attachment-record.ts';

/** The VMM and the block server open files by name and list nothing. */
const DIRECTORY_MODE = 0o711;

export class OverlayDirectory {
  /** Directory of the attachment. */
  readonly path: string;
  readonly #unit: string;

  constructor(parent: string, unit: string) {
    this.path = join(parent, unit);
    this.#unit = unit;
  }

  get overlays(): string {
    return join(this.path, 'overlays');
  }

  /** Name of an overlay below the parent directory. */
  nameBelowParent(number: number): string {
    return join(this.#unit, 'overlays', overlayName(number));
  }

  make(): void {
    mkdirSync(this.overlays, { recursive: true, mode: DIRECTORY_MODE });
  }

  remove(): void {
    rmSync(this.path, { recursive: true, force: true });
  }

  /** Numbers of the overlays, ascending. */
  list(): number[] {
    if (!existsSync(this.overlays)) return [];
    return readdirSync(this.overlays)
      .map((name) => Number.parseInt(name, 10))
      .toSorted((a, b) => a - b);
  }

  /** Creates an empty overlay. It survives a power loss when {@link settle} has resolved. */
  create(number: number, how: { sizeBytes: number; uid: number }): void {
    makeWorkspaceOverlay(this.#pathOf(number), how);
  }

  async settle(number: number): Promise<void> {
    await Promise.all([syncLater(this.#pathOf(number)), syncLater(this.overlays)]);
  }

  /** Writes what a VMM has written to the disk, so that the VMM need not do it while the guest waits. */
  async sync(number: number): Promise<void> {
    await using file = await open(this.#pathOf(number), 'r');
    await file.datasync();
  }

  /** Makes an overlay read-only for good. */
  freeze(number: number): void {
    freezeFile(this.#pathOf(number));
  }

  drop(number: number): void {
    rmSync(this.#pathOf(number), { force: true });
  }

  /** Bytes of data in an overlay, with the tables for it; an upper bound. 0 while nothing was written to it. */
  dataBytes(number: number): number {
    const path = this.#pathOf(number);
    const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
    // The first write makes the file longer.
    return size <= EMPTY_WORKSPACE_BYTES ? 0 : (findAllocatedBytes(path) ?? 0);
  }

  #pathOf(number: number): string {
    return join(this.overlays, overlayName(number));
  }
}

/**
 * Makes a new attachment survive a power loss. The record comes last: without it the overlay never was part of a disk, and it
 * names no overlay that is not whole.
 */
export async function keepNew(
  directory: OverlayDirectory,
  overlay: number,
  record: AttachmentRecord,
): Promise<void> {
  await directory.settle(overlay);
  await writeAttachmentRecordLater(directory.path, record);
  await syncLater(dirname(directory.path));
}
