/**
 * The files of one VM. Files shared with others (the RAM file it was restored from, image, frozen overlays) are hard
 * links, so the file system counts their users. When a VM or capture is removed, nothing else has to be updated, and
 * the last link frees the space.
 *
 *   vm.json                record (vm/vm-record.ts)
 *   ram                    base of its private memory mapping; never changes
 *   image.squashfs         read-only
 *   base.ext4              read-only, under all overlays
 *   disk/<number>.qcow2    overlays; the highest is the VM's own, the others are frozen
 */
import { chmodSync, constants, copyFileSync, linkSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { overlayName } from '../vm/vm-files.ts';
import { giveTo, takeBack } from '../host/file-owner.ts';
import { makeOverlay } from './overlay-file.ts';

/** The files from which a VM's directory is made. */
export interface SharedFiles {
  ramPath: string;
  imagePath: string;
  scratchBasePath: string;
  /** Paths of the frozen overlays, lowest first. */
  frozen: readonly string[];
  /** The VM's own overlay: a copy of this file, or an empty overlay of that size. */
  top: { path: string } | { sizeMiB: number };
}

/** The VMM opens its files by name and lists nothing. */
const DIRECTORY_MODE = 0o711;

export class VmDirectory {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
  }

  get ram(): string {
    return join(this.path, 'ram');
  }

  get image(): string {
    return join(this.path, 'image.squashfs');
  }

  get scratchBase(): string {
    return join(this.path, 'base.ext4');
  }

  get overlays(): string {
    return join(this.path, 'disk');
  }

  overlay(number: number): string {
    return join(this.overlays, overlayName(number));
  }

  /** Links the shared files and creates the VM's own overlay. Returns the numbers of the overlays, its own last. */
  take(shared: SharedFiles, uid: number): number[] {
    linkSync(shared.ramPath, this.ram);
    linkSync(shared.imagePath, this.image);
    linkSync(shared.scratchBasePath, this.scratchBase);
    mkdirSync(this.overlays, { mode: DIRECTORY_MODE });
    for (const [number, path] of shared.frozen.entries()) {
      // Freeze again: the process that saved it may have been killed before it could.
      freezeFile(path);
      linkSync(path, this.overlay(number));
    }
    const top = shared.frozen.length;
    if ('path' in shared.top) copyOverlay(shared.top.path, this.overlay(top), uid);
    else makeOverlay(this.overlay(top), { ...shared.top, uid });
    return [...shared.frozen.keys(), top];
  }

  /** Returns the numbers of all overlays, ascending. */
  listOverlays(): number[] {
    const numbers = readdirSync(this.overlays).map((name) => Number.parseInt(name, 10));
    return numbers.toSorted((a, b) => a - b);
  }

  /** Creates an overlay, which the VMM opens later. */
  addOverlay(number: number, how: { sizeMiB: number; uid: number }): void {
    makeOverlay(this.overlay(number), how);
  }

  removeOverlay(number: number): void {
    rmSync(this.overlay(number), { force: true });
  }

  /** Makes an overlay read-only for good. */
  freezeOverlay(number: number): void {
    freezeFile(this.overlay(number));
  }

  /** Links everything that a copy of this VM needs into `target`, except the memory and the device state. */
  linkInto(target: VmDirectory, overlays: readonly number[]): void {
    linkSync(this.image, target.image);
    linkSync(this.scratchBase, target.scratchBase);
    mkdirSync(target.overlays, { mode: DIRECTORY_MODE });
    for (const [index, number] of overlays.entries()) linkSync(this.overlay(number), target.overlay(index));
  }
}

/** Copies the overlay `source` for one VM. The copy belongs to `uid` when this returns. */
function copyOverlay(source: string, path: string, uid: number): void {
  copyFileSync(source, path, constants.COPYFILE_FICLONE);
  giveTo(path, uid);
  chmodSync(path, 0o600);
}

/** Makes a file read-only, and owned by the user that runs the service (root, if VMs are to be kept from it). */
export function freezeFile(path: string): void {
  takeBack(path);
  chmodSync(path, 0o444);
}
