import { randomBytes } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { writeDurably } from '../../lib/files/durable-file.ts';
import { findFile } from '../../lib/files/find-file.ts';

/** Returns the directory with the id, which is that of the persistent disks: the id also names the holder of their leases. */
export function idDirectoryOf(dataDir: string): string {
  return join(dataDir, 'workspaces');
}

/** A new id for each data directory: two that are copies of each other must not hold disks with one lease. */
export function openRunnerId(directory: string): string {
  const path = join(directory, 'runner-id');
  const found = findFile(path)?.toString('utf8');
  if (found !== undefined) return found;
  const id = `runner-${randomBytes(16).toString('hex')}`;
  mkdirSync(directory, { recursive: true, mode: 0o711 });
  writeDurably(path, id);
  return id;
}
