/**
 * The installations of root on this machine: a directory with a link to the data directory of each, named by its slug.
 * Each records its ranges in its own data directory, so that one that is removed or moved takes its claim along. Callers
 * hold the lock of the directory.
 */
import { readdirSync, readlinkSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { syncDirectory } from '../../lib/files/durable-file.ts';
import { findRecordedRanges, hasRecord, type HostRanges } from './host-ranges.ts';

export interface Installation extends HostRanges {
  dataDir: string;
}

/** All but the one with this slug. A link to data that is gone is removed. */
export function listOtherInstallations(slug: string, directory: string, log: Logger): Installation[] {
  return readdirSync(directory, { withFileTypes: true })
    .filter((entry) => entry.isSymbolicLink() && entry.name !== slug)
    .flatMap(({ name }) => {
      const link = join(directory, name);
      const dataDir = readlinkSync(link);
      if (hasRecord(dataDir)) return readInstallation(dataDir, log);
      rmSync(link);
      return [];
    });
}

/** Throws `invalid_request` when another installation on this machine has the slug. */
export function enterInstallation(slug: string, dataDir: string, directory: string): void {
  const link = join(directory, slug);
  const other = findTarget(link);
  if (other === dataDir) return;
  if (other !== undefined && hasRecord(other))
    throw new AppError(
      'invalid_request',
      `dataDir: ${dataDir} gets the same short name (${slug}) as ${other}, where another installation is; ` +
        'choose another directory',
    );
  if (other !== undefined) rmSync(link);
  symlinkSync(dataDir, link);
  syncDirectory(directory);
}

function findTarget(link: string): string | undefined {
  try {
    return readlinkSync(link);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** A damaged record does not keep other installations from starting; only what the host shows of that one counts then. */
function readInstallation(dataDir: string, log: Logger): Installation[] {
  try {
    const ranges = findRecordedRanges(dataDir);
    return ranges === undefined ? [] : [{ dataDir, ...ranges }];
  } catch (error) {
    log.warn({ err: error, data_dir: dataDir }, 'the record of another installation cannot be read');
    return [];
  }
}
