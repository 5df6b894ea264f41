/**
 * Guards the file system of the data directory. The disks of sandboxes are sparse, so their sizes are overcommitted.
 * PostgreSQL and the spool of ended VMs are on the same file system and must always be able to write.
 */
import { statfsSync } from 'node:fs';
import { AppError } from '@coppice/contract';

const MIB = 1024 * 1024;

export interface DiskGuardOptions {
  /** The data directory. */
  directory: string;
  /** With less free space, nothing new is created. */
  reserveMiB: number;
  /** Free space for users other than root, MiB. Tests replace it. */
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

  /** Throws `capacity` unless `neededMiB` fit and the reserve stays free. */
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
