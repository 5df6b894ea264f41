/**
 * The file system of the data directory. Disks of sandboxes are sparse, so their sizes are promises; PostgreSQL and the
 * spool of ended VMs live beside them and must always be able to write.
 */
import { statfsSync } from 'node:fs';
import { AppError } from '@coppice/contract';

const MIB = 1024 * 1024;

export interface DiskGuardOptions {
  /** The data directory. */
  directory: string;
  /** Below this much free space nothing new is made. */
  reserveMiB: number;
  /** Free space for whoever is not root, MiB; a test gives its own. */
  freeMiB?: () => number;
}

export class DiskGuard {
  readonly #options: DiskGuardOptions;

  constructor(options: DiskGuardOptions) {
    this.#options = options;
  }

  get freeMiB(): number {
    if (this.#options.freeMiB !== undefined) return this.#options.freeMiB();
    const { bavail, bsize } = statfsSync(this.#options.directory);
    return Math.floor((bavail * bsize) / MIB);
  }

  get reserveMiB(): number {
    return this.#options.reserveMiB;
  }

  /** Throws `capacity` unless that much fits and the reserve stays free. */
  assertRoom(neededMiB: number): void {
    const { directory, reserveMiB } = this.#options;
    const freeMiB = this.freeMiB;
    if (freeMiB - neededMiB >= reserveMiB) return;
    const needs = neededMiB === 0 ? '' : `${neededMiB} MiB needed, `;
    throw new AppError(
      'capacity',
      `disk: ${needs}${freeMiB} MiB free at ${directory}, ${reserveMiB} must stay free (COPPICE_DISK_RESERVE_MIB); delete images or sandboxes, or enlarge it`,
    );
  }
}
