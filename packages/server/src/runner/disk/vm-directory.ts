/**
 * The files of one VM. What it shares with others (memory it was restored from, image, frozen overlays) is here as hard
 * links, so that the file system counts who needs it: nothing has to be told when a VM or a capture goes, and its space
 * comes back with the last of them.
 *
 *   vm.json                record (vm/vm-record.ts)
 *   ram                    what its memory is a private view of; never changes
 *   image.squashfs         read-only
 *   base.ext4              read-only, under all overlays
 *   disk/<number>.qcow2    overlays; the highest is the VM's own, the others are frozen
 */
import { linkSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { overlayName } from '../vm/vm-files.ts';
import { copyOverlay, freezeFile, makeOverlay } from './overlay-file.ts';

/** What a VM's directory is made from. */
export interface SharedFiles {
  ramPath: string;
  imagePath: string;
  scratchBasePath: string;
  /** Frozen overlays, from the lowest. */
  frozen: readonly string[];
  /** What becomes the VM's own overlay: a copy of this one, or an empty one of that size. */
  top: { path: string } | { sizeMiB: number };
}

/** QEMU looks up its files by name, but lists nothing. */
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

  /** Links what is shared. Answers the numbers of the overlays, the VM's own last. */
  take(shared: SharedFiles, uid: number): number[] {
    linkSync(shared.ramPath, this.ram);
    linkSync(shared.imagePath, this.image);
    linkSync(shared.scratchBasePath, this.scratchBase);
    mkdirSync(this.overlays, { mode: DIRECTORY_MODE });
    for (const [number, path] of shared.frozen.entries()) {
      // Frozen once more: whoever saved it may have been killed before it could.
      freezeFile(path);
      linkSync(path, this.overlay(number));
    }
    const top = shared.frozen.length;
    if ('path' in shared.top) copyOverlay(shared.top.path, this.overlay(top), uid);
    else makeOverlay(this.overlay(top), { ...shared.top, uid });
    return [...shared.frozen.keys(), top];
  }

  /** Numbers of all overlays, ascending. */
  listOverlays(): number[] {
    const numbers = readdirSync(this.overlays).map((name) => Number.parseInt(name, 10));
    return numbers.toSorted((a, b) => a - b);
  }

  /** A new overlay, still under no VM. */
  addOverlay(number: number, how: { sizeMiB: number; uid: number }): void {
    makeOverlay(this.overlay(number), how);
  }

  removeOverlay(number: number): void {
    rmSync(this.overlay(number), { force: true });
  }

  /** Nobody writes to it any more. */
  freezeOverlay(number: number): void {
    freezeFile(this.overlay(number));
  }

  /** Gives all that a copy of this VM needs, besides its memory and the state of its devices, into `target`. */
  linkInto(target: VmDirectory, overlays: readonly number[]): void {
    linkSync(this.image, target.image);
    linkSync(this.scratchBase, target.scratchBase);
    mkdirSync(target.overlays, { mode: DIRECTORY_MODE });
    for (const [index, number] of overlays.entries()) linkSync(this.overlay(number), target.overlay(index));
  }
}
