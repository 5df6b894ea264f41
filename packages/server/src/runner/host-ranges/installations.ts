/**
 * The list of root's installations on this machine: a directory with a link to each data directory, named by its slug.
 * Each installation records its ranges in its own data directory, so that its claim moves and disappears with it.
 * Callers hold the lock of the directory.
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

/** Lists all installations except the one with this slug. Removes links to data that is gone. */
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

/** Adds an installation to the list. Throws `invalid_request` when another one on this machine has the slug. */
export function enterInstallation(slug: string, dataDir: string, directory: string): void {
  const link = join(directory, slug);
  const other = findTarget(link);
  if (other === dataDir) return;
  if (other !== undefined && hasRecord(other))
    throw new AppError(
      'invalid_request',
      `dataDir: ${dataDir} gets the same short name (${slug}) as ${other}, which holds another installation; ` +
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

/** Skips a damaged record, so that other installations can start; they still avoid what the host shows to be in use. */
function readInstallation(dataDir: string, log: Logger): Installation[] {
  try {
    const ranges = findRecordedRanges(dataDir);
    return ranges === undefined ? [] : [{ dataDir, ...ranges }];
  } catch (error) {
    log.warn({ err: error, data_dir: dataDir }, 'the record of another installation cannot be read');
    return [];
  }
}
